// eval and predict over a small saved model, against scores computed row by row from the same weights.
#include <cmath>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/initial_value.h"
#include "common/partition_map.h"
#include "data/dataset.h"
#include "models/model.h"
#include "proto/control.pb.h"
#include "storage/saved_model.h"
#include "tests/support/checkpoint_builder.h"
#include "tools/eval/evaluate.h"
#include "tools/eval/model_scorer.h"
#include "tools/eval/predict.h"
#include "tools/job/job_text.h"
#include "tools/job/plan_job.h"

namespace capstan {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kPartitions = 16;
constexpr char kEvalJob[] = R"(seed: 5 ranks: 1
cluster { partitions: 16 }
data {
  train: "train.csv" label { column: "y" }
  feature { column: "a" } feature { column: "c" kind: CATEGORICAL } feature { column: "d" kind: CATEGORICAL }
}
optimizer {}
model { wide_deep { embedding_dim: 4 hidden: 8 } }
)";

std::string Rows(int first, int count, bool label = true) {
  std::string text = label ? "a,c,d,y\n" : "a,c,d\n";
  for (int i = first; i < first + count; ++i) {
    text += std::to_string(i * 37 % 101) + ",x" + std::to_string(i % 13) + ",z" + std::to_string(i * 7 % 29);
    if (label) text += i * 7919 % 5 < 2 ? ",1" : ",0";
    text += '\n';
  }
  return text;
}

float Invented(TableId table, Key key, uint32_t i) {
  return 0.7f * UniformFromBits(CounterHash(99, table, key, i));
}

// Part of the rows are saved with invented weights; the others, dense blocks included, are left at initial
// values.
bool IsSaved(Key key) { return KeyHash(key) % 3 != 0; }

class EvalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Write("train.csv", Rows(0, 900));
    const JobConfig config = JobText::Parse(kEvalJob, "job")->job();
    ASSERT_EQ(PlanJob(*fs_, config, &job_), absl::OkStatus());
    SaveModel();
    auto model = SavedModel::Load(PosixFileSystem(), model_path_);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    ASSERT_EQ(PinIsaOf(*model_), absl::OkStatus());
  }

  void Write(const std::string& path, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(*fs_, path, text).ok());
  }

  void SaveModel() {
    const auto network = *MakeModel(job_.config().model(), ShapeOf(job_.config().data()));
    const auto data = *Dataset::Open(*fs_, job_.config().data(), job_.plan(), job_.recipe());
    std::vector<std::vector<uint64_t>> keys(network->tables().size());
    for (int split = 0; split < job_.plan().split_size(); ++split) {
      network->CollectKeys(data->ReadSplit(static_cast<uint32_t>(split))->rows, &keys);
    }
    testing::CheckpointSpec spec;
    spec.tables.clear();
    spec.layers.resize(1);
    spec.partitions = kPartitions;
    for (const TableSpec& table : job_.table()) {
      spec.tables.push_back({static_cast<TableId>(table.id()), table.name(), table.width(), /*slots=*/1});
      std::vector<Key> all = keys[table.id()];
      for (Key b = 0; b * table.width() < table.elements(); ++b) all.push_back(b);
      testing::BuiltRows& rows = spec.layers[0].puts[static_cast<TableId>(table.id())];
      for (const Key key : all) {
        if (IsSaved(key)) rows[key] = InventedRow(table, key);
      }
    }
    spec.edit_manifest = [this](CheckpointManifest* manifest) {
      *manifest->mutable_job() = job_;
      manifest->set_version(1);
      manifest->set_examples(900);
    };
    model_path_ = testing::BuildCheckpoint(spec, folder_.path());
  }

  static testing::BuiltRow InventedRow(const TableSpec& table, Key key) {
    testing::BuiltRow row;
    for (uint32_t k = 0; k < table.width(); ++k) {
      row.values.push_back(Invented(static_cast<TableId>(table.id()), key, k));
    }
    row.values.push_back(0);  // a slot
    return row;
  }

  float Weight(const TableSpec& spec, Key key, uint32_t i) const {
    if (IsSaved(key) && model_->Find(static_cast<TableId>(spec.id()), key) != nullptr) {
      return Invented(static_cast<TableId>(spec.id()), key, i);
    }
    const float scale = spec.init() == TableSpec::UNIFORM ? spec.scale() : 0.0f;
    const bool dense = spec.kind() == TableSpec::DENSE;
    return InitialValue(5, spec.name(), scale).At(dense ? 0 : key, dense ? key * spec.width() + i : i);
  }

  // The score of one row, alone in its batch, its weights looked up element by element.
  float ScoreAlone(const Batch& rows, uint32_t row) const {
    const auto network = *MakeModel(job_.config().model(), ShapeOf(job_.config().data()));
    const Batch batch = GatherRows(rows, std::vector<uint32_t>{row}, {});
    std::vector<std::vector<uint64_t>> keys(network->tables().size());
    network->CollectKeys(batch, &keys);
    std::vector<std::vector<float>> values(keys.size());
    std::vector<std::vector<uint32_t>> index(keys.size());
    std::vector<TableWeights> weights(keys.size());
    for (size_t t = 0; t < keys.size(); ++t) {
      const TableSpec& spec = job_.table(static_cast<int>(t));
      for (uint64_t e = 0; e < spec.elements(); ++e) {
        values[t].push_back(Weight(spec, e / spec.width(), static_cast<uint32_t>(e % spec.width())));
      }
      for (const uint64_t key : keys[t]) {
        for (uint32_t i = 0; i < spec.width(); ++i) values[t].push_back(Weight(spec, key, i));
        index[t].push_back(static_cast<uint32_t>(index[t].size()));
      }
      weights[t] = {values[t].data(), index[t]};
    }
    float score = 0;
    network->Predict(batch, weights, std::span(&score, 1));
    return score;
  }

  std::vector<std::string> PredictLines(const std::string& file, unsigned threads = 2) {
    ScoreOptions options;
    options.threads = threads;
    const auto report = Predict(*fs_, *model_, {file}, options, "scores.csv");
    EXPECT_TRUE(report.ok()) << report.status();
    std::istringstream text(*ReadWholeFile(*fs_, "scores.csv", 1 << 20));
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
  }

  const std::unique_ptr<FileSystem> fs_ = NewMemoryFileSystem();
  const testing::TemporaryFolder folder_;
  std::string model_path_;
  EffectiveJob job_;
  std::unique_ptr<SavedModel> model_;
};

TEST_F(EvalTest, ScoresAreThoseOfTheWeights) {
  Write("test.csv", Rows(850, 1300));  // some categories are new, several batches, the last one short
  const std::vector<std::string> lines = PredictLines("test.csv");
  ASSERT_EQ(lines.size(), 1301u);
  EXPECT_EQ(lines[0], "row,score");
  DataPlan plan;
  Recipe recipe = job_.recipe();
  ASSERT_EQ(ScanData(*fs_, job_.config().data(), {"test.csv"}, SplitRule(), &plan, &recipe),
            absl::OkStatus());
  const auto data = *Dataset::Open(*fs_, job_.config().data(), plan, recipe);
  size_t row = 0;
  for (int split = 0; split < plan.split_size(); ++split) {
    const ParsedSplit parsed = *data->ReadSplit(static_cast<uint32_t>(split));
    for (uint32_t i = 0; i < parsed.rows.rows; ++i, ++row) {
      if (row % 17 != 0 && row + 1 != 1300) continue;
      const std::string& line = lines[row + 1];
      ASSERT_EQ(line.substr(0, line.find(',')), std::to_string(row));
      EXPECT_NEAR(std::stof(line.substr(line.find(',') + 1)), ScoreAlone(parsed.rows, i), 1e-6) << row;
    }
  }
  EXPECT_EQ(row, 1300u);
}

TEST_F(EvalTest, AScoreDependsOnTheRowAlone) {
  Write("test.csv", Rows(0, 1200));
  const std::vector<std::string> lines = PredictLines("test.csv", 1);
  EXPECT_EQ(PredictLines("test.csv", 3), lines);
  for (const int row : {0, 511, 700, 1199}) {
    Write("one.csv", Rows(row, 1));
    const std::string alone = PredictLines("one.csv")[1];
    EXPECT_EQ(alone.substr(2), lines[row + 1].substr(lines[row + 1].find(',') + 1));
  }
}

TEST_F(EvalTest, FiguresAreThoseOfTheScores) {
  Write("test.csv", Rows(100, 700));
  ScoreOptions options;
  options.threads = 1;
  const auto report = Evaluate(*fs_, *model_, {"test.csv"}, options);
  ASSERT_TRUE(report.ok()) << report.status();
  std::vector<float> scores, labels;
  const std::vector<std::string> lines = PredictLines("test.csv");
  for (int i = 0; i < 700; ++i) {
    scores.push_back(std::stof(lines[i + 1].substr(lines[i + 1].find(',') + 1)));
    labels.push_back((i + 100) * 7919 % 5 < 2 ? 1.0f : 0.0f);
  }
  EXPECT_EQ(report->metrics.auc, ExactAuc(scores, labels, {}));
  EXPECT_EQ(report->metrics.rows, 700u);
  options.threads = 4;
  const auto again = Evaluate(*fs_, *model_, {"test.csv"}, options);
  EXPECT_EQ(again->metrics.logloss, report->metrics.logloss);
  EXPECT_EQ(again->metrics.calibration, report->metrics.calibration);
  EXPECT_THAT(EvalJson(*report), HasSubstr("{\"rows\":700,\"bad_rows\":0,\"auc\":0."));
  EXPECT_THAT(EvalLine(*report), HasSubstr("700 rows  AUC 0."));
}

TEST_F(EvalTest, FiguresThatAreNotDefinedAreNull) {
  Write("test.csv", "a,c,d,y\n1,x,z,1\n2,x,z,1\n");
  const auto report = Evaluate(*fs_, *model_, {"test.csv"}, {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(EvalJson(*report), HasSubstr("\"auc\":null"));
  EXPECT_THAT(EvalLine(*report), HasSubstr("AUC -"));
}

TEST_F(EvalTest, PredictNeedsNoLabelButEvalDoes) {
  Write("labelled.csv", Rows(3, 50));
  Write("bare.csv", Rows(3, 50, /*label=*/false));
  EXPECT_EQ(PredictLines("bare.csv"), PredictLines("labelled.csv"));
  const absl::Status status = Evaluate(*fs_, *model_, {"bare.csv"}, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("bare.csv"));
}

TEST_F(EvalTest, BadRowsAreCountedAndHaveNoScore) {
  Write("test.csv", Rows(0, 30) + "old,x1,z1,1\n" + Rows(30, 20).substr(8));
  ScoreOptions options;
  const auto refused = Predict(*fs_, *model_, {"test.csv"}, options, "scores.csv");
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("32"));
  EXPECT_FALSE(*fs_->Exists("scores.csv"));
  EXPECT_FALSE(*fs_->Exists("scores.csv.tmp"));
  options.max_bad_rows = 1;
  const auto report = Predict(*fs_, *model_, {"test.csv"}, options, "scores.csv");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->rows, 51u);
  EXPECT_EQ(report->bad_rows, 1u);
  EXPECT_THAT(*ReadWholeFile(*fs_, "scores.csv", 1 << 20), HasSubstr("\n30,\n31,0."));
  const auto figures = Evaluate(*fs_, *model_, {"test.csv"}, options);
  ASSERT_TRUE(figures.ok()) << figures.status();
  EXPECT_EQ(figures->metrics.rows, 50u);
  EXPECT_EQ(figures->bad_rows, 1u);
  EXPECT_EQ(figures->input_rows, 51u);
}

TEST_F(EvalTest, ASinkThatFailsEndsTheScoring) {
  Write("test.csv", Rows(0, 600));
  int calls = 0;
  const absl::Status status = ScoreFiles(*fs_, *model_, {"test.csv"}, {}, [&](const ScoredRows&) {
    return ++calls == 2 ? Unavailable("disk full") : absl::OkStatus();
  });
  EXPECT_EQ(status, Unavailable("disk full"));
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace capstan
