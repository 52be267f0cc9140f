#include "ps/row_store.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/partition_map.h"
#include "common/random.h"

namespace capstan {
namespace {

constexpr Key kLargest = ~Key{0};

// The inverse of Mix64, to make keys whose hash is chosen.
uint64_t UnshiftXor(uint64_t x, int shift) {
  uint64_t y = x;
  for (int i = 0; i < 64 / shift; ++i) y = x ^ (y >> shift);
  return y;
}
uint64_t InverseOdd(uint64_t odd) {
  uint64_t inverse = odd;  // right in the lowest 3 bits; every round doubles them
  for (int i = 0; i < 5; ++i) inverse *= 2 - odd * inverse;
  return inverse;
}
Key KeyOfHash(uint64_t hash) {
  uint64_t x = UnshiftXor(hash, 31) * InverseOdd(0x94D049BB133111EBull);
  x = UnshiftXor(x, 27) * InverseOdd(0xBF58476D1CE4E5B9ull);
  return UnshiftXor(x, 30) - 0x9E3779B97F4A7C15ull;
}

TEST(KeyOfHash, InvertsKeyHash) {
  for (const uint64_t hash : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, uint64_t{0x123456789ABCDEF0}}) {
    EXPECT_EQ(KeyHash(KeyOfHash(hash)), hash);
  }
}

struct KeyPattern {
  const char* name;
  Key (*make)(uint64_t i);
};
constexpr KeyPattern kPatterns[] = {
    {"sequential", [](uint64_t i) { return i; }},
    {"sequential from the top", [](uint64_t i) { return kLargest - i; }},
    {"random", [](uint64_t i) { return Mix64(i ^ 0xABCDEF); }},
    {"multiples of 2^12", [](uint64_t i) { return i << 12; }},
    {"multiples of 2^40", [](uint64_t i) { return i << 40; }},
    {"one partition of 4096", [](uint64_t i) { return KeyOfHash((uint64_t{77} << 52) | (Mix64(i) >> 12)); }},
    {"equal top 40 bits of the hash",
     [](uint64_t i) { return KeyOfHash((uint64_t{0xABCDEF0123} << 24) | i); }},
    {"equal low 40 bits of the hash", [](uint64_t i) { return KeyOfHash((i << 40) | 0x123456789A); }},
};

// The value a test writes into a row of a key.
float ValueOf(Key key) { return static_cast<float>(key % 9973) + 0.5f; }

void InitValue(Key key, RowRef row) { row.weights()[0] = ValueOf(key); }

TEST(RowStore, BehavesLikeAnUnorderedMapUnderRandomOperations) {
  for (const KeyPattern& pattern : kPatterns) {
    SCOPED_TRACE(pattern.name);
    SeededRandom random(3);
    RowStore store(RowLayout{3, 2});
    std::unordered_map<Key, float> model;
    const auto pick = [&] {
      const uint64_t r = random.Below(3000);
      return r == 0 ? Key{0} : r == 1 ? kLargest : pattern.make(r);
    };
    for (int round = 0; round < 600; ++round) {
      std::vector<Key> keys(random.Below(70));
      for (Key& key : keys) key = pick();
      switch (random.Below(4)) {
        case 0: {  // create, and change the rows
          std::vector<RowRef> rows(keys.size());
          store.FindOrCreate(keys, rows.data(), [&](Key key, RowRef row) {
            ASSERT_TRUE(model.try_emplace(key, ValueOf(key)).second);
            ASSERT_TRUE(std::all_of(row.weights(), row.weights() + 5, [](float x) { return x == 0; }));
            ASSERT_EQ(row.counters(store.layout())->updates, 0u);
            InitValue(key, row);
          });
          for (size_t i = 0; i < keys.size(); ++i) {
            ASSERT_EQ(rows[i].weights()[0], model.at(keys[i]));
            rows[i].weights()[0] += 1;
            rows[i].slots(store.layout())[1] = 9;
            rows[i].counters(store.layout())->updates = 7;
            model[keys[i]] += 1;
          }
          break;
        }
        case 1:
          for (const Key key : keys) ASSERT_EQ(store.Erase(key), model.erase(key) == 1) << key;
          break;
        case 2: {
          std::vector<RowRef> rows(keys.size());
          store.Find(keys, rows.data());
          for (size_t i = 0; i < keys.size(); ++i) {
            const auto at = model.find(keys[i]);
            ASSERT_EQ(rows[i].found(), at != model.end());
            if (rows[i].found()) {
              ASSERT_EQ(rows[i].weights()[0], at->second);
            }
          }
          break;
        }
        default: {
          std::vector<float> out(keys.size() * 3, -1);
          std::vector<size_t> missing;
          store.GatherWeights(keys, out.data(), [&](size_t i, float* row) {
            missing.push_back(i);
            row[0] = row[1] = row[2] = -2;
          });
          EXPECT_TRUE(std::is_sorted(missing.begin(), missing.end()));
          for (size_t i = 0; i < keys.size(); ++i) {
            const auto at = model.find(keys[i]);
            ASSERT_EQ(out[3 * i], at == model.end() ? -2 : at->second);
            ASSERT_EQ(out[3 * i + 2], at == model.end() ? -2 : 0);
          }
        }
      }
      ASSERT_EQ(store.rows(), model.size());
    }
    std::unordered_map<Key, float> seen;
    store.ForEach([&](Key key, RowRef row) {
      EXPECT_TRUE(seen.try_emplace(key, row.weights()[0]).second) << "visited twice: " << key;
    });
    EXPECT_EQ(seen, model);
  }
}

TEST(RowStore, HoldsManyRowsOfEveryPattern) {
  constexpr uint64_t kRows = 300'000;
  for (const KeyPattern& pattern : kPatterns) {
    SCOPED_TRACE(pattern.name);
    RowStore store(RowLayout{1, 0});
    std::vector<Key> keys;
    for (uint64_t i = 0; i < kRows; ++i) keys.push_back(pattern.make(i));
    std::vector<RowRef> rows(kRows);
    store.FindOrCreate(keys, rows.data(), InitValue);
    EXPECT_EQ(store.rows(), std::unordered_set<Key>(keys.begin(), keys.end()).size());
    std::vector<RowRef> found(kRows);
    store.Find(keys, found.data());
    size_t wrong = 0;
    for (size_t i = 0; i < kRows; ++i) {
      // Rows do not move: the first reference is still the row's.
      wrong += found[i].weights() != rows[i].weights() || found[i].weights()[0] != ValueOf(keys[i]);
    }
    EXPECT_EQ(wrong, 0u);
  }
}

TEST(RowStore, KeysThatShareAHashPrefixDoNotBlowUpTheIndex) {
  RowStore store(RowLayout{1, 0});
  std::vector<Key> keys;
  for (uint64_t i = 0; i < 500'000; ++i) keys.push_back(KeyOfHash((uint64_t{0xABCDEF0123} << 24) | i));
  std::vector<RowRef> rows(keys.size());
  store.FindOrCreate(keys, rows.data(), InitValue);
  EXPECT_LT(store.bytes(), keys.size() * (16 + 46) * 2 + (8u << 20));
}

TEST(RowStore, GathersRowsOfEveryWidth) {
  for (const uint32_t width : {1u, 2u, 7u, 8u, 16u, 17u, 32u, 64u, 100u, 1000u}) {
    SCOPED_TRACE(width);
    RowStore store(RowLayout{width, 1});
    std::vector<Key> keys;
    for (uint64_t i = 0; i < 300; ++i) keys.push_back(Mix64(i));
    std::vector<RowRef> rows(keys.size());
    store.FindOrCreate(keys, rows.data(), [&](Key key, RowRef row) {
      for (uint32_t j = 0; j < width; ++j) row.weights()[j] = ValueOf(key + j);
      row.slots(store.layout())[0] = -1;
    });
    keys.insert(keys.begin() + 3, 12345);  // absent
    std::vector<float> out(keys.size() * width, -3);
    store.GatherWeights(keys, out.data(), [&](size_t i, float* row) {
      EXPECT_EQ(i, 3u);
      std::fill(row, row + width, -2.0f);
    });
    for (size_t i = 0; i < keys.size(); ++i) {
      for (uint32_t j = 0; j < width; ++j) {
        ASSERT_EQ(out[i * width + j], i == 3 ? -2.0f : ValueOf(keys[i] + j));
      }
    }
  }
}

TEST(RowStore, HandsRowsOverInOrderForAnyNumberOfKeys) {
  RowStore store(RowLayout{1, 0});
  for (size_t n = 0; n < 70; ++n) {
    std::vector<Key> keys;
    for (size_t i = 0; i < n; ++i) keys.push_back(1000 * (i / 2) + n);  // every key twice, most of them new
    size_t next = 0;
    store.FindOrCreate(keys, InitValue, [&](size_t first, const RowRef* rows, size_t count) {
      ASSERT_EQ(first, next);
      ASSERT_GT(count, 0u);
      for (size_t j = 0; j < count; ++j) ASSERT_EQ(rows[j].weights()[0], ValueOf(keys[first + j]));
      next += count;
    });
    EXPECT_EQ(next, n);
  }
}

TEST(RowStore, ReusesTheRecordsOfErasedRows) {
  RowStore store(RowLayout{16, 16});
  std::vector<Key> keys;
  for (uint64_t i = 0; i < 100'000; ++i) keys.push_back(Mix64(i));
  std::vector<RowRef> rows(keys.size());
  const auto fill = [&](Key, RowRef row) {
    ASSERT_EQ(row.weights()[0], 0);
    ASSERT_EQ(row.weights()[1], 0);
    ASSERT_EQ(row.counters(store.layout())->last_step, 0u);
    row.weights()[0] = row.weights()[1] = 1;
    row.counters(store.layout())->last_step = 5;
  };
  store.FindOrCreate(keys, rows.data(), fill);
  const uint64_t bytes = store.bytes();
  for (int round = 0; round < 3; ++round) {
    for (const Key key : keys) ASSERT_TRUE(store.Erase(key));
    EXPECT_FALSE(store.Erase(keys[0]));
    EXPECT_EQ(store.rows(), 0u);
    store.Find(keys, rows.data());
    EXPECT_TRUE(std::none_of(rows.begin(), rows.end(), [](RowRef row) { return row.found(); }));
    store.FindOrCreate(keys, rows.data(), fill);
    EXPECT_EQ(store.bytes(), bytes);
  }
}

TEST(RowStore, ASmallTableIsSmall) {
  RowStore store(RowLayout{16, 16});
  RowRef row;
  const Key key = 1;
  store.FindOrCreate(std::span(&key, 1), &row, InitValue);
  EXPECT_LT(store.bytes(), 8u << 10);
}

// Of this thread: what other processes take is not the store's pause.
double ThreadCpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Growth to some millions of rows: memory stays near what the rows need, and no call takes long.
TEST(RowStore, GrowsWithoutALongPauseAndWithoutWaste) {
  constexpr uint64_t kRows = 2'000'000;
  constexpr size_t kKeysPerCall = 128;
  const RowLayout layout{16, 16};
  RowStore store(layout);
  RowRef rows[kKeysPerCall];
  double total = 0, longest = 0;
  for (uint64_t i = 0; i < kRows; i += kKeysPerCall) {
    Key keys[kKeysPerCall];
    for (size_t j = 0; j < kKeysPerCall; ++j) keys[j] = Mix64(i + j);
    const double begin = ThreadCpuSeconds();
    store.FindOrCreate(keys, rows, InitValue);
    const double took = ThreadCpuSeconds() - begin;
    total += took;
    longest = std::max(longest, took);
    if (store.rows() >= 100'000 && (i / kKeysPerCall) % 64 == 0) {
      const double need =
          static_cast<double>(store.rows()) * (static_cast<double>(layout.bytes()) + 16 / 0.7);
      ASSERT_LT(static_cast<double>(store.bytes()), 1.35 * need) << "at " << store.rows() << " rows";
    }
  }
  // A table that doubles as a whole spends about half of its time in the last doubling.
  EXPECT_LT(longest, 0.1 * total);
  RecordProperty("longest_call_us", static_cast<int>(longest * 1e6));
  RecordProperty("total_ms", static_cast<int>(total * 1e3));
}

TEST(RowStore, SortsKeysByPartitionThenKey) {
  for (const uint32_t partitions : {1u, 2u, 16u, 4096u}) {
    RowStore store(RowLayout{1, 0});
    std::vector<Key> keys = {0, kLargest};
    for (uint64_t i = 1; i < 200'000; ++i) keys.push_back(Mix64(i * 977));
    std::vector<RowRef> rows(keys.size());
    store.FindOrCreate(keys, rows.data(), InitValue);
    std::vector<std::pair<PartitionId, Key>> order;
    for (const Key key : keys) order.emplace_back(PartitionOf(key, partitions), key);
    std::sort(order.begin(), order.end());
    const std::pair<PartitionId, PartitionId> ranges[] = {
        {0, partitions}, {0, 1}, {partitions - 1, partitions}, {partitions / 3, partitions / 2}, {1, 1}};
    for (const auto& [first, last] : ranges) {
      SCOPED_TRACE(std::to_string(first) + " to " + std::to_string(last) + " of " +
                   std::to_string(partitions));
      std::vector<Key> expected;
      for (const auto& [partition, key] : order) {
        if (partition >= first && partition < last) expected.push_back(key);
      }
      EXPECT_EQ(store.SortedKeys(first, last, partitions), expected);
      std::vector<Key> of_rows;
      for (const KeyedRow& row : store.SortedRows(first, last, partitions)) {
        of_rows.push_back(row.key);
        ASSERT_EQ(row.row.weights()[0], ValueOf(row.key));
      }
      EXPECT_EQ(of_rows, expected);
    }
  }
}

TEST(RowStore, MovesItsRowsWithIt) {
  RowStore a(RowLayout{1, 0});
  std::vector<Key> keys = {1, 2, 3};
  RowRef rows[3], found[3];
  a.FindOrCreate(keys, rows, InitValue);
  RowStore b(std::move(a));
  b.Find(keys, found);
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(found[i].weights(), rows[i].weights());
}

}  // namespace
}  // namespace capstan
