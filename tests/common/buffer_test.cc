#include "common/buffer.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace capstan {
namespace {

TEST(Buffer, EmptyHasNoBytes) {
  const Buffer empty;
  EXPECT_EQ(empty.size(), 0u);
  EXPECT_EQ(empty.data(), nullptr);
  EXPECT_TRUE(empty.empty());
  EXPECT_FALSE(empty.unique());
  EXPECT_TRUE(Buffer::Allocate(0).empty());
  EXPECT_TRUE(Buffer::CopyOf(nullptr, 0).empty());
  const Buffer copy = empty;
  EXPECT_EQ(copy.data(), nullptr);
}

TEST(Buffer, EverySizeIsAlignedAndWritable) {
  for (const size_t size :
       {1u, 63u, 255u, 256u, 257u, 4096u, 600u * 1024, 1u << 20, (4u << 20) + 1, 9u << 20}) {
    const Buffer buffer = Buffer::Allocate(size);
    ASSERT_EQ(buffer.size(), size);
    EXPECT_EQ(buffer.bytes().size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u) << size;
    std::memset(buffer.data(), 0xA5, size);
    EXPECT_EQ(buffer.data()[size - 1], std::byte{0xA5});
  }
}

TEST(Buffer, CopiesShareAndMovesHandOver) {
  Buffer first = Buffer::CopyOf("hello", 5);
  EXPECT_TRUE(first.unique());
  Buffer second = first;
  EXPECT_EQ(second.data(), first.data());
  EXPECT_FALSE(first.unique());
  Buffer third = std::move(second);
  EXPECT_FALSE(third.unique());
  first = Buffer();
  EXPECT_TRUE(third.unique());
  EXPECT_EQ(std::memcmp(third.data(), "hello", 5), 0);
  Buffer& alias = third;
  third = alias;  // onto itself
  EXPECT_EQ(std::memcmp(third.data(), "hello", 5), 0);
  EXPECT_TRUE(third.unique());
}

TEST(Buffer, AdoptedBytesAreReleasedOnceByTheLast) {
  int released = 0;
  char bytes[] = "adopted";
  {
    Buffer last;
    {
      Buffer first = Buffer::Adopt(
          bytes, 7, [](void* arg) { ++*static_cast<int*>(arg); }, &released);
      EXPECT_EQ(static_cast<void*>(first.data()), bytes);
      EXPECT_EQ(first.size(), 7u);
      last = first;
    }
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
}

TEST(Buffer, ThePoolCountsLiveBytesAndReusesABlock) {
  const BufferPoolStats before = GetBufferPoolStats();
  const std::byte* place = nullptr;
  {
    const Buffer buffer = Buffer::Allocate(3000);
    place = buffer.data();
    EXPECT_EQ(GetBufferPoolStats().live_bytes - before.live_bytes, 4096u);
  }
  const BufferPoolStats after = GetBufferPoolStats();
  EXPECT_EQ(after.live_bytes, before.live_bytes);
  EXPECT_GE(after.idle_bytes, 4096u);
  const Buffer again = Buffer::Allocate(2500);  // the same class: the block given back last
  EXPECT_EQ(again.data(), place);
  EXPECT_EQ(again.size(), 2500u);
}

TEST(Buffer, ThePoolKeepsNoMoreThanItsLimitAndNoLargeBlock) {
  {
    std::vector<Buffer> buffers;
    for (size_t bytes = 0; bytes < kBufferPoolIdleLimit + (64u << 20); bytes += 4u << 20) {
      buffers.push_back(Buffer::Allocate(4u << 20));
    }
  }
  const size_t idle = GetBufferPoolStats().idle_bytes;
  EXPECT_LE(idle, kBufferPoolIdleLimit);
  EXPECT_GT(idle, kBufferPoolIdleLimit - (8u << 20));
  { const Buffer large = Buffer::Allocate(64u << 20); }
  EXPECT_EQ(GetBufferPoolStats().idle_bytes, idle);
}

TEST(Buffer, ImpossibleSizesThrow) { EXPECT_THROW(Buffer::Allocate(~size_t{0}), std::bad_alloc); }

#if defined(__SANITIZE_ADDRESS__)
TEST(BufferDeathTest, AddressSanitizerSeesThroughThePool) {
  const Buffer buffer = Buffer::Allocate(300);  // of a block of 512
  volatile std::byte* bytes = buffer.data();
  EXPECT_DEATH(static_cast<void>(bytes[300]), "use-after-poison");
  volatile std::byte* stale = Buffer::Allocate(300).data();
  EXPECT_DEATH(static_cast<void>(stale[0]), "use-after-poison");
}
#endif

// Many threads drop references to the same buffers, as I/O threads do; ThreadSanitizer watches.
TEST(Buffer, ThreadsDropSharedReferences) {
  const size_t live_before = GetBufferPoolStats().live_bytes;
  std::atomic<int> released{0};
  constexpr int kThreads = 4, kRounds = 500;
  static char adopted[16] = {};
  for (int round = 0; round < kRounds; ++round) {
    Buffer shared = Buffer::Allocate(100 + round);
    std::memset(shared.data(), round & 0xff, shared.size());
    Buffer foreign = Buffer::Adopt(
        adopted, sizeof adopted, [](void* arg) { static_cast<std::atomic<int>*>(arg)->fetch_add(1); },
        &released);
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    const int per_round = round % 50 == 0 ? kThreads : 1;  // starting threads costs more than what they do
    for (int t = 0; t < per_round; ++t) {
      threads.emplace_back([shared, foreign, round, &wrong]() mutable {
        const Buffer mine = std::move(shared);
        const Buffer theirs = foreign;
        if (mine.data()[mine.size() - 1] != std::byte(round & 0xff)) ++wrong;
        const Buffer own = Buffer::Allocate(128);
        std::memset(own.data(), 1, own.size());
      });
    }
    shared = Buffer();
    foreign = Buffer();
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(wrong, 0);
  }
  EXPECT_EQ(released, kRounds);
  EXPECT_EQ(GetBufferPoolStats().live_bytes, live_before);
}

}  // namespace
}  // namespace capstan
