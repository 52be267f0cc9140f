#include "tools/inspect/schema_difference.h"

#include <algorithm>

#include <fmt/core.h>

#include "data/format.h"
#include "proto/control.pb.h"

namespace capstan {
namespace {

const FeatureConfig* FindFeature(const DataConfig& data, const std::string& name) {
  for (const FeatureConfig& feature : data.feature()) {
    if (FeatureName(feature) == name) return &feature;
  }
  return nullptr;
}

const FeatureStats* FindStats(const Recipe& recipe, const std::string& name) {
  for (const FeatureStats& stats : recipe.numeric()) {
    if (stats.name() == name) return &stats;
  }
  return nullptr;
}

class DifferenceList {
 public:
  template <typename T>
  void Compare(const std::string& what, const T& a, const T& b) {
    if (a != b) lines_.push_back(fmt::format("{}: {} in A, {} in B", what, a, b));
  }
  void Add(std::string line) { lines_.push_back(std::move(line)); }
  std::vector<std::string> Take() { return std::move(lines_); }

 private:
  std::vector<std::string> lines_;
};

void CompareFeatures(const FeatureConfig& a, const FeatureConfig& b, DifferenceList* list) {
  const std::string what = fmt::format("feature '{}': ", FeatureName(a));
  list->Compare(what + "column", a.column(), b.column());
  list->Compare(what + "kind", FeatureConfig::Kind_Name(a.kind()), FeatureConfig::Kind_Name(b.kind()));
  if (a.kind() != b.kind()) return;
  if (a.kind() == FeatureConfig::CATEGORICAL) return list->Compare(what + "salt", a.salt(), b.salt());
  list->Compare(what + "normalize", FeatureConfig::Normalize_Name(a.normalize()),
                FeatureConfig::Normalize_Name(b.normalize()));
  list->Compare(what + "missing", FeatureConfig::Missing_Name(a.missing()), FeatureConfig::Missing_Name(b.missing()));
}

}  // namespace

std::vector<std::string> SchemaDifferences(const EffectiveJob& a, const EffectiveJob& b) {
  DifferenceList list;
  const DataConfig data_a = WithFormatDefaults(a.config().data());
  const DataConfig data_b = WithFormatDefaults(b.config().data());
  // Rows that are not stored read as their initial values, which depend on it.
  list.Compare("seed", a.config().seed(), b.config().seed());
  list.Compare("libsvm", IsLibsvm(data_a), IsLibsvm(data_b));
  list.Compare("label", data_a.label().column(), data_b.label().column());
  for (const FeatureConfig& feature : data_a.feature()) {
    const FeatureConfig* const other = FindFeature(data_b, FeatureName(feature));
    if (other == nullptr) {
      list.Add(fmt::format("feature '{}': in A only", FeatureName(feature)));
    } else {
      CompareFeatures(feature, *other, &list);
    }
  }
  for (const FeatureConfig& feature : data_b.feature()) {
    if (FindFeature(data_a, FeatureName(feature)) == nullptr)
      list.Add(fmt::format("feature '{}': in B only", FeatureName(feature)));
  }
  for (const FeatureStats& stats : a.recipe().numeric()) {
    const FeatureStats* const other = FindStats(b.recipe(), stats.name());
    if (other == nullptr) continue;
    list.Compare(fmt::format("feature '{}': mean", stats.name()), stats.mean(), other->mean());
    list.Compare(fmt::format("feature '{}': standard deviation", stats.name()), stats.stddev(), other->stddev());
  }
  return list.Take();
}

}  // namespace capstan
