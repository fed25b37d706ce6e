#include "engine/comm/paths/comm_path.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

using Members = std::span<const CommMember>;

constexpr std::array<CommPath, 3> kInOrder = {CommPath::kIpc, CommPath::kNccl, CommPath::kHost};

std::string NcclVersion(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

bool Reaches(const CommMember& member, const std::string& gpu) {
  return member.gpu == gpu ||
         std::find(member.reaches.begin(), member.reaches.end(), gpu) != member.reaches.end();
}

// Each of these: "" when all members can take the path, else the first reason.

std::string WhyNotIpc(Members members) {
  for (size_t r = 0; r < members.size(); ++r) {
    if (members[r].realm.empty()) return absl::StrCat("rank ", r, " has no CUDA IPC");
    if (members[r].realm != members[0].realm) {
      return absl::StrCat("rank ", r, " differs from rank 0 in node, container or user");
    }
  }
  for (size_t to = 0; to < members.size(); ++to) {
    for (size_t from = 0; from < members.size(); ++from) {
      if (!Reaches(members[to], members[from].gpu)) {
        return absl::StrCat("rank ", to, "'s GPU cannot read the memory of rank ", from, "'s");
      }
    }
  }
  return "";
}

std::string WhyNotNccl(Members members) {
  for (size_t r = 0; r < members.size(); ++r) {
    const int version = members[r].nccl_version, first = members[0].nccl_version;
    if (version == 0) return absl::StrCat("rank ", r, " has no NCCL");
    if (version != first) {
      return absl::StrCat("rank ", r, " has NCCL ", NcclVersion(version), ", rank 0 ",
                          NcclVersion(first));
    }
    for (size_t other = 0; other < r; ++other) {
      if (members[other].gpu == members[r].gpu) {
        return absl::StrCat("ranks ", other, " and ", r, " are on one GPU");
      }
    }
  }
  return "";
}

std::string WhyNot(CommPath path, Members members) {
  if (path == CommPath::kHost) return "";
  if (members[0].gpu.empty()) return "rank 0 has no GPU";
  return path == CommPath::kIpc ? WhyNotIpc(members) : WhyNotNccl(members);
}

absl::Status CheckKinds(Members members) {
  for (size_t r = 1; r < members.size(); ++r) {
    if (members[r].gpu.empty() == members[0].gpu.empty()) continue;
    const bool gpu = !members[r].gpu.empty();
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", r, gpu ? " is on a GPU, rank 0 is not" : " is not on a GPU, rank 0 is",
        ": all ranks of a group must be on GPUs, or none"));
  }
  return absl::OkStatus();
}

// nullopt: no member demands a path.
absl::StatusOr<std::optional<CommPath>> Wanted(Members members) {
  std::optional<size_t> first;
  for (size_t r = 0; r < members.size(); ++r) {
    if (!members[r].wants.has_value()) continue;
    if (!first.has_value()) first = r;
    if (members[r].wants == members[*first].wants) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", r, " wants the path ", std::string(NameOf(*members[r].wants)),
                     ", rank ", *first, " wants ", std::string(NameOf(*members[*first].wants))));
  }
  if (!first.has_value()) return std::nullopt;
  return members[*first].wants;
}

}  // namespace

std::string_view NameOf(CommPath path) {
  return path == CommPath::kIpc ? "ipc" : path == CommPath::kNccl ? "nccl" : "host";
}

std::optional<CommPath> CommPathOf(std::string_view name) {
  for (const CommPath path : kInOrder) {
    if (NameOf(path) == name) return path;
  }
  return std::nullopt;
}

absl::StatusOr<PathChoice> ChoosePath(Members members) {
  const absl::Status kinds = CheckKinds(members);
  if (!kinds.ok()) return kinds;
  const auto wanted = Wanted(members);
  if (!wanted.ok()) return wanted.status();
  PathChoice choice;
  if (wanted->has_value()) {
    const std::string why_not = WhyNot(**wanted, members);
    if (why_not.empty()) return PathChoice{**wanted, true, ""};
    return absl::InvalidArgumentError(
        absl::StrCat("the path ", std::string(NameOf(**wanted)), " was wanted, but ", why_not));
  }
  for (const CommPath path : kInOrder) {
    const std::string why_not = WhyNot(path, members);
    choice.path = path;
    if (why_not.empty()) break;
    absl::StrAppend(&choice.why_not, choice.why_not.empty() ? "" : "; ", std::string(NameOf(path)),
                    ": ", why_not);
  }
  return choice;
}

}  // namespace skein::engine
