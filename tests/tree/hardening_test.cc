// What the linker made of the hardening flags, read from the ELF headers of this test and of every program
// that has been built beside it: position independent, bound at start, relocations read-only, no executable
// stack.
#include <elf.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace capstan {
namespace {

struct Hardening {
  bool position_independent = false;
  bool bound_at_start = false;
  bool relocations_read_only = false;
  bool stack_not_executable = false;
  bool stack_protector = false;
};

template <typename T>
T ReadAt(const std::string& bytes, size_t offset) {
  T value = {};
  if (offset <= bytes.size() && sizeof value <= bytes.size() - offset) {
    std::memcpy(&value, bytes.data() + offset, sizeof value);
  }
  return value;
}

bool IsElf(const std::string& bytes) { return bytes.compare(0, SELFMAG, ELFMAG) == 0; }

Hardening ReadHardening(const std::string& bytes) {
  Hardening found;
  const auto header = ReadAt<Elf64_Ehdr>(bytes, 0);
  bool pie_flag = false;
  for (size_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = ReadAt<Elf64_Phdr>(bytes, header.e_phoff + i * header.e_phentsize);
    if (segment.p_type == PT_GNU_RELRO) found.relocations_read_only = true;
    if (segment.p_type == PT_GNU_STACK) found.stack_not_executable = (segment.p_flags & PF_X) == 0;
    if (segment.p_type != PT_DYNAMIC) continue;
    for (size_t at = 0; at < segment.p_filesz; at += sizeof(Elf64_Dyn)) {
      const auto entry = ReadAt<Elf64_Dyn>(bytes, segment.p_offset + at);
      if (entry.d_tag == DT_BIND_NOW) found.bound_at_start = true;
      if (entry.d_tag == DT_FLAGS && (entry.d_un.d_val & DF_BIND_NOW) != 0) found.bound_at_start = true;
      if (entry.d_tag == DT_FLAGS_1 && (entry.d_un.d_val & DF_1_NOW) != 0) found.bound_at_start = true;
      if (entry.d_tag == DT_FLAGS_1 && (entry.d_un.d_val & DF_1_PIE) != 0) pie_flag = true;
    }
  }
  found.position_independent = header.e_type == ET_DYN && pie_flag;
  found.stack_protector = bytes.find("__stack_chk_fail") != std::string::npos;
  return found;
}

std::string ReadBytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

TEST(Hardening, EveryProgramIsLinkedWithIt) {
  namespace fs = std::filesystem;
  std::vector<fs::path> programs = {fs::read_symlink("/proc/self/exe")};
  for (const auto& entry : fs::directory_iterator(CAPSTAN_BIN_DIR)) {
    const std::string name = entry.path().filename().string();
    if (name.compare(0, 7, "capstan") == 0 && entry.is_regular_file()) programs.push_back(entry.path());
  }
  for (const fs::path& program : programs) {
    const std::string bytes = ReadBytes(program);
    if (!IsElf(bytes)) continue;  // a script
    const Hardening found = ReadHardening(bytes);
    EXPECT_TRUE(found.position_independent) << program;
    EXPECT_TRUE(found.bound_at_start) << program << ": want -z now";
    EXPECT_TRUE(found.relocations_read_only) << program << ": want -z relro";
    EXPECT_TRUE(found.stack_not_executable) << program << ": want -z noexecstack";
    EXPECT_TRUE(found.stack_protector) << program << ": want -fstack-protector-strong";
  }
}

TEST(Hardening, TheReaderTellsAPlainProgram) {
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_type = ET_EXEC;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;
  Elf64_Phdr stack = {};
  stack.p_type = PT_GNU_STACK;
  stack.p_flags = PF_R | PF_W | PF_X;
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes.append(reinterpret_cast<const char*>(&stack), sizeof stack);
  const Hardening found = ReadHardening(bytes);
  EXPECT_FALSE(found.position_independent || found.bound_at_start || found.relocations_read_only ||
               found.stack_not_executable || found.stack_protector);
}

}  // namespace
}  // namespace capstan
