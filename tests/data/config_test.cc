// What ValidateDataConfig accepts and refuses.
#include <string>

#include <gtest/gtest.h>

#include "tests/data/data_testing.h"

namespace capstan {
namespace {

using testing_data::ConfigOf;
using testing_data::Message;

struct ConfigCase {
  const char* why;
  const char* text;
  const char* message;  // nullptr: accepted
};
constexpr ConfigCase kConfigCases[] = {
    {"the least there is", "label { column: 'y' } feature { column: 'x' }", nullptr},
    {"one column, two features",
     "label { column: 'y' } feature { column: 'x' } feature { column: 'x' name: 'z' }", nullptr},
    {"libsvm needs nothing", "format: LIBSVM", nullptr},
    {"libsvm by ending", "train: 'a.libsvm.gz'", nullptr},
    {"Criteo needs nothing", "format: CRITEO", nullptr},
    {"Criteo with features of one's own", "format: CRITEO feature { column: 'C7' kind: CATEGORICAL }",
     nullptr},
    {"Criteo with its columns written out", "format: CRITEO column: 'label'",
     "data.column: data.format: CRITEO fixes"},
    {"defaults written out",
     "label { column: 'y' } delimiter: ',' format: TSV feature { column: 'x' name: 'x' kind: CATEGORICAL "
     "normalize: "
     "STANDARDIZE missing: MISSING_MEAN salt: 'x' }",
     nullptr},
    {"no label", "feature { column: 'x' }", "data.label.column: is missing"},
    {"no feature", "label { column: 'y' }", "data.feature: there is none"},
    {"a feature without a column", "label { column: 'y' } feature { column: 'x' } feature { name: 'z' }",
     "data.feature[1].column: is missing"},
    {"the label as a feature", "label { column: 'y' } feature { column: 'y' }",
     "data.feature[0].column: 'y' is the label"},
    {"a name twice", "label { column: 'y' } feature { column: 'x' } feature { column: 'x' }",
     "data.feature[1].name: 'x' is the name of an earlier feature"},
    {"salt of a number", "label { column: 'y' } feature { column: 'x' salt: 's' }",
     "data.feature[0].salt: is for CATEGORICAL"},
    {"a normalized category",
     "label { column: 'y' } feature { column: 'x' kind: CATEGORICAL normalize: NONE }",
     "data.feature[0].normalize: is for NUMERIC"},
    {"a category with an indicator",
     "label { column: 'y' } feature { column: 'x' kind: CATEGORICAL missing: MISSING_INDICATOR }",
     "data.feature[0].missing: 'x' is CATEGORICAL"},
    {"a category that must be there",
     "label { column: 'y' } feature { column: 'x' kind: CATEGORICAL missing: MISSING_ERROR }", nullptr},
    {"two bytes", "delimiter: '||' label { column: 'y' } feature { column: 'x' }",
     "data.delimiter: '||' is 2 bytes long"},
    {"no byte", "delimiter: '' label { column: 'y' } feature { column: 'x' }",
     "data.delimiter: '' is 0 bytes long"},
    {"a quote", "delimiter: '\"' label { column: 'y' } feature { column: 'x' }", "data.delimiter: "},
    {"TSV with another delimiter", "format: TSV delimiter: ';' label { column: 'y' } feature { column: 'x' }",
     "data.delimiter: ';' contradicts data.format: TSV"},
    {"a column twice", "column: 'x' column: 'x' label { column: 'y' } feature { column: 'x' }",
     "data.column[1]: 'x' is there twice"},
    {"an empty name", "column: 'x' column: '' label { column: 'y' } feature { column: 'x' }",
     "data.column[1]: is empty"},
    {"negative alone", "label { column: 'y' negative: '0' } feature { column: 'x' }",
     "data.label.negative: needs data.label.positive"},
    {"positive and negative", "label { column: 'y' positive: '1' negative: '1' } feature { column: 'x' }",
     "data.label.negative: '1' is in data.label.positive too"},
    {"no split", "split_rows: 0 label { column: 'y' } feature { column: 'x' }", "data.split_rows: 0"},
    {"a comment over two lines", "comment_prefix: '#\\n' label { column: 'y' } feature { column: 'x' }",
     "data.comment_prefix: holds a line end"},
    {"libsvm with a feature", "format: LIBSVM feature { column: 'x' }",
     "data.feature: libsvm rows have no columns"},
    {"libsvm with a label column", "format: LIBSVM label { column: 'y' }", "data.label.column: libsvm rows"},
    {"libsvm with a weight column", "format: LIBSVM weight_column: 'w'", "data.weight_column: libsvm rows"},
    {"two formats", "train: 'a.csv' train: 'b.svm' label { column: 'y' } feature { column: 'x' }",
     "data.train: 'a.csv' and 'b.svm' have different formats"},
    {"an ending that says nothing", "train: 'a.data' label { column: 'y' } feature { column: 'x' }",
     "data.format: the ending of 'a.data' does not tell its format"},
};

TEST(DataConfig, FollowsTheTable) {
  for (const ConfigCase& c : kConfigCases) {
    const absl::Status status = ValidateDataConfig(ConfigOf(c.text));
    if (c.message == nullptr) {
      EXPECT_TRUE(status.ok()) << c.why << ": " << status;
      continue;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.why;
    EXPECT_EQ(Message(status).rfind(c.message, 0), 0u) << c.why << ": " << status;
  }
}

TEST(DataConfig, ShapeFollowsTheFeatures) {
  const FeatureShape shape = ShapeOf(ConfigOf(R"(
    label { column: "y" }
    feature { column: "a" missing: MISSING_INDICATOR }
    feature { column: "b" kind: CATEGORICAL }
    feature { column: "a" name: "a#id" kind: CATEGORICAL }
    feature { column: "c" })"));
  EXPECT_EQ(shape.numeric_width, 3u);
  EXPECT_EQ(shape.sparse_names, (std::vector<std::string>{"b", "a#id"}));
}

TEST(DataConfig, AModelOfOtherFeaturesIsRefused) {
  const auto fs = NewMemoryFileSystem();
  testing_data::Put(*fs, "a.csv", "x,z,y\n1,2,0\n2,3,1\n");
  const DataConfig one = ConfigOf("label { column: 'y' } feature { column: 'x' }");
  const DataConfig other = ConfigOf("label { column: 'y' } feature { column: 'z' }");
  const absl::StatusOr<testing_data::Scanned> train = testing_data::Scan(*fs, one, {"a.csv"});
  ASSERT_TRUE(train.ok()) << train.status();
  const absl::Status status = testing_data::Scan(*fs, other, {"a.csv"}, {}, train->recipe).status();
  EXPECT_NE(Message(status).find("'z' has no fitted statistics"), std::string::npos) << status;
}

}  // namespace
}  // namespace capstan
