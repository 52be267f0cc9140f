// Commits one fault on purpose. Built in sanitizer builds only, where its tests pass only if the fault is
// reported: a suite that is green because the sanitizer is off would otherwise look the same as a sound one.
#include <cstdio>
#include <limits>
#include <string_view>
#include <thread>

namespace {

int UseAfterFree() {
  int* volatile stale = new int(1);  // volatile: or the compiler sees the fault and refuses it
  delete stale;
  return *stale;
}

int Overflow(int argc) {
  volatile int one = argc > 0 ? 1 : 0;
  return std::numeric_limits<int>::max() + one;
}

int Leak() {
  int* volatile lost = new int(1);
  lost = nullptr;
  return lost == nullptr ? 0 : 1;
}

int Race() {
  int counter = 0;
  std::thread other([&counter] { ++counter; });
  ++counter;
  other.join();
  return counter;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view fault = argc == 2 ? argv[1] : "";
  if (fault == "use_after_free") return UseAfterFree();
  if (fault == "overflow") return Overflow(argc) == 0 ? 1 : 0;
  if (fault == "leak") return Leak();
  if (fault == "race") return Race() == 2 ? 0 : 1;
  std::fputs("usage: sanitizer_probe use_after_free|overflow|leak|race\n", stderr);
  return 2;
}
