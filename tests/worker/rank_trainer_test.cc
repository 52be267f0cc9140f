// The computing half of ranks against real tables, without a network.
#include "worker/rank_trainer.h"

#include <algorithm>
#include <cmath>

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "common/random.h"
#include "ps/shard_tables.h"
#include "ps/table.h"
#include "tests/support/core_testing.h"

namespace capstan {
namespace {

constexpr uint32_t kRowsPerStep = 32;
constexpr uint32_t kSteps = 128;
constexpr uint32_t kSplitRows = 128;
constexpr uint32_t kNumerics = 3;
constexpr uint64_t kSeed = 5;

struct Cut {
  uint32_t micro, accumulation, ranks;
  uint32_t rank_rows() const { return micro * accumulation; }
};

// A data set laid out so that, however a step of 32 rows is cut, it holds the same rows in the same order.
class LaidOutDataset final : public Dataset {
 public:
  explicit LaidOutDataset(const Cut& cut) : plan_(PlanOf(cut)), cut_(cut) {}

  static BatchPlan PlanOf(const Cut& cut) {
    return BatchPlan(kSeed, std::vector<uint32_t>(kSteps * kRowsPerStep / kSplitRows, kSplitRows), cut.rank_rows());
  }

  absl::StatusOr<ParsedSplit> ReadSplit(uint32_t split) const override {
    const std::vector<uint32_t> splits = plan_.SplitOrder(0), rows = plan_.RowOrder(0, split);
    const auto place = static_cast<uint32_t>(std::find(splits.begin(), splits.end(), split) - splits.begin());
    const uint32_t rank = place % cut_.ranks;
    const uint32_t first_step = place / cut_.ranks * (kSplitRows / cut_.rank_rows());
    std::vector<uint64_t> ids(kSplitRows);
    for (uint32_t i = 0; i < kSplitRows; ++i) {
      const uint32_t step = first_step + i / cut_.rank_rows();
      ids[rows[i]] = uint64_t{step} * kRowsPerStep + rank * cut_.rank_rows() + i % cut_.rank_rows();
    }
    ParsedSplit parsed;
    Fill(ids, &parsed.rows);
    return parsed;
  }
  void SetLabelsRequired(bool) override {}

 private:
  static void Fill(const std::vector<uint64_t>& ids, Batch* rows) {
    rows->rows = static_cast<uint32_t>(ids.size());
    rows->numeric_width = kNumerics;
    rows->sparse.resize(2);
    for (SparseColumn& column : rows->sparse) column.offsets.push_back(0);
    for (const uint64_t id : ids) {
      double logit = -0.3;
      for (uint32_t i = 0; i < kNumerics; ++i) {
        const float x = UniformFromBits(CounterHash(1, id, i, 0));
        rows->numeric.push_back(x);
        logit += (i + 1) * x;
      }
      for (uint32_t c = 0; c < 2; ++c) {
        const uint64_t value = CounterHash(2, id, c, 0) % 40;
        rows->sparse[c].keys.push_back(Mix64(value + 1000 * c));
        rows->sparse[c].offsets.push_back(static_cast<uint32_t>(rows->sparse[c].keys.size()));
        logit += value % 5 == 0 ? 1 : 0;
      }
      const double p = 1 / (1 + std::exp(-logit));
      rows->labels.push_back(0.5 + 0.5 * UniformFromBits(CounterHash(3, id, 0, 0)) < p ? 1.0f : 0.0f);
      rows->weights.push_back(1.0f);
      rows->row_ids.push_back(id);
    }
  }

  const BatchPlan plan_;
  const Cut cut_;
};

EffectiveJob JobOf(const Cut& cut) {
  EffectiveJob job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
      config {
        epochs: 1 consistency: "sync"
        data { label { column: "y" }
               feature { column: "a" name: "a" } feature { column: "b" name: "b" } feature { column: "c" name: "c" }
               feature { column: "s" name: "s" kind: CATEGORICAL } feature { column: "t" name: "t" kind: CATEGORICAL } }
        model { lr {} }
        cluster { partitions: 16 } })", &job));
  job.mutable_config()->set_seed(kSeed);
  job.mutable_config()->set_ranks(cut.ranks);
  job.mutable_config()->mutable_batch()->set_micro(cut.micro);
  job.mutable_config()->mutable_batch()->set_accumulation(cut.accumulation);
  const BatchPlan plan = LaidOutDataset::PlanOf(cut);
  for (uint32_t split = 0; split < plan.splits(); ++split) job.mutable_plan()->add_split()->set_rows(kSplitRows);
  const std::unique_ptr<Model> model = *MakeModel(job.config().model(), ShapeOf(job.config().data()));
  for (const TableSpec& spec : model->tables()) {
    TableSpec* table = job.add_table();
    *table = spec;
    table->mutable_optimizer()->set_name("adam");
    table->mutable_optimizer()->set_learning_rate(0.01);
  }
  return job;
}

struct Trained {
  std::vector<double> loss;                 // of each step
  std::map<std::pair<TableId, Key>, std::vector<float>> weights;
};

// All ranks step by step, as the protocol would have them.
Trained Train(const Cut& cut, uint32_t shards) {
  const EffectiveJob job = JobOf(cut);
  const LaidOutDataset data(cut);
  const ShardMap map = *ShardMap::Even(16, shards);
  std::vector<ShardTables> tables;
  for (ShardId shard = 0; shard < shards; ++shard) tables.push_back(*ShardTables::Make(job, map, shard));
  std::vector<std::unique_ptr<RankTrainer>> trainers;
  const BatchPlan plan = LaidOutDataset::PlanOf(cut);
  std::vector<std::vector<BatchId>> batches;
  for (Rank rank = 0; rank < cut.ranks; ++rank) {
    trainers.push_back(*RankTrainer::Make(job, data, map));
    batches.push_back(plan.BatchesOfRank(0, rank, cut.ranks));
  }
  Trained trained;
  for (Step step = 0; step < kSteps; ++step) {
    std::vector<std::vector<PushRecord>> pushes(shards, std::vector<PushRecord>(cut.ranks));
    double loss = 0, weight = 0;
    for (Rank rank = 0; rank < cut.ranks; ++rank) {
      StepTicket ticket{rank, step, batches[rank][step], std::nullopt};
      if (step + 1 < kSteps) ticket.upcoming = batches[rank][step + 1];
      const ShardRequests pull = *trainers[rank]->Prepare(ticket);
      ShardReplies replies(shards);
      for (ShardId shard = 0; shard < shards; ++shard) {
        for (const RequestPart& part : pull[shard]) {
          uint16_t sections = 0;
          Buffer reply = tables[shard].Answer(*ParseBody(part.sections, part.body), nullptr, &sections);
          replies[shard].push_back(*ParseBody(sections, std::move(reply)));
        }
      }
      const ShardRequests push = *trainers[rank]->Compute(PushInfo(), replies);
      for (ShardId shard = 0; shard < shards; ++shard) {
        PushRecord& record = pushes[shard][rank];
        for (const RequestPart& part : push[shard]) record.parts.push_back(*ParseBody(part.sections, part.body));
        record.info = *ReadStruct<PushInfo>(record.parts[0], SectionKind::kPushInfo);
      }
      loss += pushes[0][rank].info.loss_sum;
      weight += pushes[0][rank].info.weight_sum;
      EXPECT_EQ(pushes[0][rank].info.examples, cut.rank_rows());
    }
    trained.loss.push_back(loss / weight);
    for (ShardId shard = 0; shard < shards; ++shard) {
      std::vector<const PushRecord*> in_rank_order;
      for (const PushRecord& push : pushes[shard]) in_rank_order.push_back(&push);
      UpdateContext context;
      context.step = step + 1;
      tables[shard].ApplyStep(in_rank_order, weight, context);
    }
  }
  for (const ShardTables& shard : tables) {
    for (int t = 0; t < job.table_size(); ++t) {
      const auto id = static_cast<TableId>(t);
      shard.table(id).store().ForEach([&](Key key, RowRef row) {
        trained.weights[{id, key}] = {row.weights(), row.weights() + job.table(t).width()};
      });
    }
  }
  return trained;
}

TEST(BatchIdentity, HoweverAStepIsCutTheModelIsTheSame) {
  const Trained whole = Train({1, 32, 1}, 1);
  EXPECT_LT(whole.loss.back(), 0.9 * whole.loss.front()) << "it learns";
  for (const Cut& cut : {Cut{1, 4, 8}, Cut{8, 4, 1}, Cut{32, 1, 1}, Cut{4, 1, 8}}) {
    const Trained other = Train(cut, 1);
    for (uint32_t step = 0; step < kSteps; ++step) {
      ASSERT_NEAR(other.loss[step], whole.loss[step], 1e-5)
          << cut.micro << " × " << cut.accumulation << " × " << cut.ranks << ", step " << step;
    }
    ASSERT_EQ(other.weights.size(), whole.weights.size());
    for (const auto& [name, row] : whole.weights) {
      const std::vector<float>& twin = other.weights.at(name);
      for (size_t i = 0; i < row.size(); ++i) ASSERT_NEAR(twin[i], row[i], 1e-5) << "table " << name.first;
    }
  }
}

TEST(BatchIdentity, TheNumberOfShardsChangesNoBit) {
  const Cut cut{1, 4, 8};
  const Trained one = Train(cut, 1), three = Train(cut, 3);
  EXPECT_EQ(one.loss, three.loss);
  EXPECT_EQ(one.weights, three.weights);
}

class BrokenDataset final : public Dataset {
 public:
  absl::StatusOr<ParsedSplit> ReadSplit(uint32_t) const override { return DataLoss("the file was cut off"); }
  void SetLabelsRequired(bool) override {}
};

TEST(RankTrainer, ASplitThatCannotBeReadIsAnErrorAndNoAbort) {
  const Cut cut{1, 4, 8};
  const EffectiveJob job = JobOf(cut);
  const BrokenDataset data;
  const std::unique_ptr<RankTrainer> trainer = *RankTrainer::Make(job, data, *ShardMap::Even(16, 1));
  EXPECT_EQ(trainer->Prepare({0, 0, BatchId{0, 0, 0}, BatchId{0, 1, 0}}).status().code(), absl::StatusCode::kDataLoss);
}

TEST(RankTrainer, ReadsAheadThroughSplitsInAnyOrder) {
  const Cut cut{1, 4, 8};
  const EffectiveJob job = JobOf(cut);
  const LaidOutDataset data(cut);
  const std::unique_ptr<RankTrainer> trainer = *RankTrainer::Make(job, data, *ShardMap::Even(16, 1));
  for (uint32_t i = 0; i < 20; ++i) {  // what was read ahead is now and then not what comes
    const std::optional<BatchId> upcoming = i % 3 == 0 ? std::nullopt : std::optional(BatchId{0, (i * 7) % 32, 0});
    EXPECT_TRUE(trainer->Prepare({0, i, BatchId{0, (i * 5) % 32, i % 8}, upcoming}).ok());
  }
}

}  // namespace
}  // namespace capstan
