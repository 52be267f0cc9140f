#include "tools/job/fill.h"

#include <algorithm>

#include <fmt/core.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "proto/job.pb.h"

namespace capstan {
namespace {

namespace pb = google::protobuf;
using Field = pb::FieldDescriptor;

bool HasDefaults(const pb::Descriptor& message) {
  for (int i = 0; i < message.field_count(); ++i) {
    if (message.field(i)->has_default_value()) return true;
  }
  return false;
}

// Reads the value, default included, and sets it.
void SetToDefault(pb::Message* message, const Field& field) {
  const pb::Reflection& r = *message->GetReflection();
  switch (field.cpp_type()) {
    case Field::CPPTYPE_UINT32:
      r.SetUInt32(message, &field, r.GetUInt32(*message, &field));
      break;
    case Field::CPPTYPE_UINT64:
      r.SetUInt64(message, &field, r.GetUInt64(*message, &field));
      break;
    case Field::CPPTYPE_DOUBLE:
      r.SetDouble(message, &field, r.GetDouble(*message, &field));
      break;
    case Field::CPPTYPE_BOOL:
      r.SetBool(message, &field, r.GetBool(*message, &field));
      break;
    case Field::CPPTYPE_ENUM:
      r.SetEnum(message, &field, r.GetEnum(*message, &field));
      break;
    case Field::CPPTYPE_STRING:
      r.SetString(message, &field, r.GetString(*message, &field));
      break;
    default:
      break;  // job.proto has no other type with a default
  }
}

// Keys whose absence says something: their defaults depend on other keys.
bool IsConditional(const Field& field) {
  static const char* const kNames[] = {"capstan.DataConfig.delimiter", "capstan.FeatureConfig.normalize",
                                       "capstan.FeatureConfig.missing"};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](const char* n) { return field.full_name() == n; });
}

void FillMessage(pb::Message* message) {
  const pb::Descriptor& type = *message->GetDescriptor();
  const pb::Reflection& r = *message->GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const Field& field = *type.field(i);
    if (field.is_repeated()) {
      if (field.message_type() == nullptr) continue;
      for (int k = 0; k < r.FieldSize(*message, &field); ++k)
        FillMessage(r.MutableRepeatedMessage(message, &field, k));
    } else if (field.message_type() != nullptr) {
      const bool wanted = field.real_containing_oneof() == nullptr && HasDefaults(*field.message_type());
      if (wanted || r.HasField(*message, &field)) FillMessage(r.MutableMessage(message, &field));
    } else if (field.has_default_value() && !r.HasField(*message, &field) && !IsConditional(field)) {
      SetToDefault(message, field);
    }
  }
}

void FillData(DataConfig* data) {
  const bool tabs = data->format() == DataConfig::TSV || data->format() == DataConfig::CRITEO;
  if (!data->has_delimiter() && tabs) data->set_delimiter("\t");
  if (!data->has_delimiter() && data->format() == DataConfig::CSV) data->set_delimiter(",");
  for (FeatureConfig& feature : *data->mutable_feature()) {
    if (!feature.has_name()) feature.set_name(feature.column());
    if (feature.kind() == FeatureConfig::CATEGORICAL) {
      if (!feature.has_salt()) feature.set_salt(feature.name());
    } else {
      if (!feature.has_normalize()) feature.set_normalize(feature.normalize());
      if (!feature.has_missing()) feature.set_missing(feature.missing());
    }
  }
}

absl::Status NotDivisible(std::string_view given, uint64_t global, uint64_t per_micro,
                          std::string_view factors) {
  const uint64_t below = global / per_micro * per_micro;
  const uint64_t above = below + per_micro;
  const std::string fits = below > 0 ? fmt::format("{} or {}", below, above) : fmt::format("{}", above);
  return InvalidArgument(fmt::format("{} is no multiple of {} = {}; batch.global = {} would fit", given,
                                     factors, per_micro, fits));
}

}  // namespace

void FillDefaults(JobConfig* job) {
  FillMessage(job);
  FillData(job->mutable_data());
  if (job->model().has_wide_deep() && job->model().wide_deep().hidden_size() == 0) {
    for (const uint32_t width : {256u, 128u, 64u})
      job->mutable_model()->mutable_wide_deep()->add_hidden(width);
  }
}

absl::Status InferBatch(JobConfig* job) {
  BatchConfig& batch = *job->mutable_batch();
  const uint64_t ranks = job->ranks();
  const bool accumulation_given = batch.has_accumulation();
  if (!batch.has_global() && !batch.has_micro()) {
    const uint64_t steps = std::max<uint64_t>(1, batch.accumulation());
    batch.set_micro(static_cast<uint32_t>(std::max<uint64_t>(1, kDefaultGlobalBatch / (ranks * steps))));
  }
  if (batch.has_global() && batch.has_micro() && !accumulation_given) {
    const uint64_t per_step = uint64_t{batch.micro()} * ranks;
    if (per_step == 0 || batch.global() % per_step != 0 || batch.global() == 0) {
      return NotDivisible(fmt::format("batch.global = {}", batch.global()), batch.global(),
                          std::max<uint64_t>(1, per_step),
                          fmt::format("micro {} × ranks {}", batch.micro(), ranks));
    }
    batch.set_accumulation(static_cast<uint32_t>(batch.global() / per_step));
    return absl::OkStatus();
  }
  if (!accumulation_given) batch.set_accumulation(1);
  if (batch.has_global() && !batch.has_micro()) {
    const uint64_t parts = uint64_t{batch.accumulation()} * ranks;
    if (parts == 0 || batch.global() % parts != 0 || batch.global() == 0) {
      return NotDivisible(fmt::format("batch.global = {}", batch.global()), batch.global(),
                          std::max<uint64_t>(1, parts),
                          fmt::format("accumulation {} × ranks {}", batch.accumulation(), ranks));
    }
    batch.set_micro(static_cast<uint32_t>(batch.global() / parts));
    return absl::OkStatus();
  }
  const unsigned __int128 product =
      static_cast<unsigned __int128>(batch.micro()) * batch.accumulation() * ranks;
  if (product > UINT32_MAX) {
    return InvalidArgument(
        fmt::format("micro {} × accumulation {} × ranks {} is more rows than a step can hold ({})",
                    batch.micro(), batch.accumulation(), ranks, UINT32_MAX));
  }
  const uint32_t global = static_cast<uint32_t>(product);
  if (batch.has_global() && batch.global() != global) {
    return InvalidArgument(
        fmt::format("batch.global = {} contradicts micro {} × accumulation {} × ranks {} = {}; leave "
                    "one of them out",
                    batch.global(), batch.micro(), batch.accumulation(), ranks, global));
  }
  batch.set_global(global);
  return absl::OkStatus();
}

}  // namespace capstan
