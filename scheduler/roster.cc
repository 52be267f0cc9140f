#include "scheduler/roster.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "proto/control_frame.h"

namespace capstan {

std::string MemberInfo::Describe() const { return fmt::format("{} (pid {} on {})", name, pid, host); }

uint32_t Roster::Count(MemberRole role) const {
  return static_cast<uint32_t>(std::count_if(members_.begin(), members_.end(),
                                             [role](const MemberInfo& member) { return member.role == role; }));
}

MemberInfo& Roster::Add(MemberInfo info) {
  info.id = static_cast<NodeId>(members_.size() + 1);
  members_.push_back(std::move(info));
  return members_.back();
}

MemberInfo* Roster::Find(NodeId id, Incarnation incarnation) {
  for (MemberInfo& member : members_) {
    if (member.id == id && member.incarnation == incarnation) return &member;
  }
  return nullptr;
}

MemberInfo* Roster::FindName(const std::string& name) {
  for (MemberInfo& member : members_) {
    if (member.name == name) return &member;
  }
  return nullptr;
}

std::vector<MemberInfo*> Roster::OfRole(MemberRole role) {
  std::vector<MemberInfo*> found;
  for (MemberInfo& member : members_) {
    if (member.role == role) found.push_back(&member);
  }
  std::sort(found.begin(), found.end(), [](const MemberInfo* a, const MemberInfo* b) {
    return a->name.size() != b->name.size() ? a->name.size() < b->name.size() : a->name < b->name;
  });
  return found;
}

std::string Roster::Describe() const {
  std::vector<std::string> have, missing;
  for (const MemberRole role : {MemberRole::kServer, MemberRole::kWorker}) {
    const char* word = role == MemberRole::kServer ? "server" : "worker";
    std::vector<std::string> names;
    for (const MemberInfo& member : members_) {
      if (member.role == role) names.push_back(member.Describe());
    }
    const uint32_t wanted = Wanted(role);
    have.push_back(fmt::format("{} of {} {}{}{}", names.size(), wanted, word, wanted == 1 ? "" : "s",
                               names.empty() ? "" : fmt::format(" [{}]", fmt::join(names, ", "))));
    if (names.size() < wanted) {
      const size_t lacking = wanted - names.size();
      missing.push_back(fmt::format("{} {}{}", lacking, word, lacking == 1 ? "" : "s"));
    }
  }
  return fmt::format("have {}; missing: {}", fmt::join(have, ", "),
                     missing.empty() ? "nobody" : fmt::format("{}", fmt::join(missing, ", ")));
}

std::string InTheWordsOf(const std::string& name, const std::string& text) {
  const std::string clean = CleanText(text);
  return clean.rfind(name + ":", 0) == 0 || clean.rfind(name + "/", 0) == 0 ? clean : name + ": " + clean;
}

}  // namespace capstan
