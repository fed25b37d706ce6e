#include "engine/comm/paths/comm_path.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace skein::engine {
namespace {

constexpr int kNccl = 22809;

// A process on a GPU of a node whose GPUs all reach one another.
CommMember Gpu(const std::string& node, const std::string& gpu) {
  CommMember member{.gpu = node + gpu, .realm = node, .nccl_version = kNccl};
  for (const char* other : {"0", "1", "2", "3"}) {
    if (other != gpu) member.reaches.push_back(node + other);
  }
  return member;
}

std::string ChoiceOf(const std::vector<CommMember>& members) {
  const auto choice = ChoosePath(members);
  if (!choice.ok()) {
    EXPECT_TRUE(absl::IsInvalidArgument(choice.status())) << choice.status();
    return std::string(choice.status().message());
  }
  return std::string(NameOf(choice->path)) + (choice->wanted ? ", wanted" : "") +
         (choice->why_not.empty() ? "" : " (" + choice->why_not + ")");
}

TEST(ChoosePath, OneNode) {
  EXPECT_EQ(ChoiceOf({Gpu("a", "0")}), "ipc");
  EXPECT_EQ(ChoiceOf({Gpu("a", "0"), Gpu("a", "1")}), "ipc");
  EXPECT_EQ(ChoiceOf({Gpu("a", "0"), Gpu("a", "0")}), "ipc");
  EXPECT_EQ(ChoiceOf({Gpu("a", "0"), Gpu("a", "1"), Gpu("a", "1"), Gpu("a", "3")}), "ipc");
}

TEST(ChoosePath, TwoNodes) {
  EXPECT_EQ(ChoiceOf({Gpu("a", "0"), Gpu("b", "0")}),
            "nccl (ipc: rank 1 differs from rank 0 in node, container or user)");
  EXPECT_EQ(ChoiceOf({Gpu("a", "0"), Gpu("a", "1"), Gpu("b", "1"), Gpu("b", "0")}),
            "nccl (ipc: rank 2 differs from rank 0 in node, container or user)");
  EXPECT_EQ(ChoiceOf({Gpu("a", "0"), Gpu("b", "1"), Gpu("b", "1")}),
            "host (ipc: rank 1 differs from rank 0 in node, container or user; "
            "nccl: ranks 1 and 2 are on one GPU)");
}

TEST(ChoosePath, GpusThatDoNotReachOneAnother) {
  CommMember lonely = Gpu("a", "1");
  lonely.reaches.clear();
  EXPECT_EQ(ChoiceOf({Gpu("a", "0"), lonely}),
            "nccl (ipc: rank 1's GPU cannot read the memory of rank 0's)");
  EXPECT_EQ(ChoiceOf({lonely, Gpu("a", "0")}),
            "nccl (ipc: rank 0's GPU cannot read the memory of rank 1's)");
  EXPECT_EQ(ChoiceOf({lonely, lonely}), "ipc");
  EXPECT_EQ(ChoiceOf({lonely, Gpu("a", "0"), lonely}),
            "host (ipc: rank 0's GPU cannot read the memory of rank 1's; "
            "nccl: ranks 0 and 2 are on one GPU)");
}

TEST(ChoosePath, WithoutIpc) {
  CommMember closed = Gpu("a", "1");
  closed.realm.clear();
  EXPECT_EQ(ChoiceOf({closed}), "nccl (ipc: rank 0 has no CUDA IPC)");
  EXPECT_EQ(ChoiceOf({Gpu("a", "0"), closed}), "nccl (ipc: rank 1 has no CUDA IPC)");
  EXPECT_EQ(ChoiceOf({closed, closed}),
            "host (ipc: rank 0 has no CUDA IPC; nccl: ranks 0 and 1 are on one GPU)");
}

TEST(ChoosePath, WithoutNccl) {
  CommMember none = Gpu("b", "0"), other = Gpu("b", "0");
  none.nccl_version = 0;
  other.nccl_version = 22703;
  const std::string far = "host (ipc: rank 1 differs from rank 0 in node, container or user; ";
  EXPECT_EQ(ChoiceOf({Gpu("a", "0"), none}), far + "nccl: rank 1 has no NCCL)");
  EXPECT_EQ(ChoiceOf({none, Gpu("a", "0")}), far + "nccl: rank 0 has no NCCL)");
  EXPECT_EQ(ChoiceOf({none, none}), "ipc");
  EXPECT_EQ(ChoiceOf({Gpu("a", "0"), other}), far + "nccl: rank 1 has NCCL 2.27.3, rank 0 2.28.9)");
}

TEST(ChoosePath, WithoutGpus) {
  const CommMember host;
  EXPECT_EQ(ChoiceOf({host}), "host (ipc: rank 0 has no GPU; nccl: rank 0 has no GPU)");
  EXPECT_EQ(ChoiceOf({host, host, host}), "host (ipc: rank 0 has no GPU; nccl: rank 0 has no GPU)");
}

TEST(ChoosePath, GpusAndHostsDoNotMix) {
  const CommMember host;
  EXPECT_EQ(ChoiceOf({Gpu("a", "0"), Gpu("a", "1"), host}),
            "rank 2 is not on a GPU, rank 0 is: all ranks of a group must be on GPUs, or none");
  EXPECT_EQ(ChoiceOf({host, Gpu("a", "0")}),
            "rank 1 is on a GPU, rank 0 is not: all ranks of a group must be on GPUs, or none");
}

TEST(ChoosePath, AMemberMayWantOne) {
  const auto wants = [](CommMember member, CommPath path) {
    member.wants = path;
    return member;
  };
  const CommMember a = Gpu("a", "0"), b = Gpu("a", "1"), c = Gpu("c", "1"), host;
  EXPECT_EQ(ChoiceOf({a, wants(b, CommPath::kHost)}), "host, wanted");
  EXPECT_EQ(ChoiceOf({wants(a, CommPath::kNccl), b}), "nccl, wanted");
  EXPECT_EQ(ChoiceOf({wants(a, CommPath::kIpc), wants(b, CommPath::kIpc)}), "ipc, wanted");
  EXPECT_EQ(ChoiceOf({wants(host, CommPath::kHost), host}), "host, wanted");
  EXPECT_EQ(ChoiceOf({a, wants(b, CommPath::kIpc), wants(a, CommPath::kHost)}),
            "rank 2 wants the path host, rank 1 wants ipc");
  EXPECT_EQ(ChoiceOf({a, wants(a, CommPath::kNccl)}),
            "the path nccl was wanted, but ranks 0 and 1 are on one GPU");
  EXPECT_EQ(ChoiceOf({a, wants(c, CommPath::kIpc)}),
            "the path ipc was wanted, but rank 1 differs from rank 0 in node, container or user");
  EXPECT_EQ(ChoiceOf({host, wants(host, CommPath::kNccl)}),
            "the path nccl was wanted, but rank 0 has no GPU");
}

// What one rank chooses from the addresses, all do: nothing else goes in. And whichever is chosen
// is possible.
TEST(ChoosePath, OrderOfRanksDoesNotChangeIt) {
  std::vector<CommMember> kinds = {Gpu("a", "0"), Gpu("a", "1"), Gpu("b", "0")};
  for (int which = 0; which < 3; ++which) {
    CommMember lame = Gpu("a", "2");
    if (which == 0) lame.realm.clear();
    if (which == 1) lame.nccl_version = 0;
    if (which == 2) lame.reaches.clear();
    kinds.push_back(lame);
  }
  for (const CommMember& x : kinds) {
    for (const CommMember& y : kinds) {
      for (const CommMember& z : kinds) {
        const auto one = ChoosePath(std::vector{x, y, z});
        ASSERT_TRUE(one.ok());
        EXPECT_EQ(one->path, ChoosePath(std::vector{y, z, x})->path);
        EXPECT_EQ(one->path, ChoosePath(std::vector{z, y, x})->path);
        const bool one_node = x.realm == y.realm && y.realm == z.realm;
        const bool own = x.gpu != y.gpu && y.gpu != z.gpu && x.gpu != z.gpu;
        EXPECT_TRUE(one->path != CommPath::kIpc || one_node);
        EXPECT_TRUE(one->path != CommPath::kNccl || own);
      }
    }
  }
}

TEST(CommPath, Names) {
  for (const CommPath path : {CommPath::kIpc, CommPath::kNccl, CommPath::kHost}) {
    EXPECT_EQ(CommPathOf(NameOf(path)), path);
  }
  EXPECT_EQ(CommPathOf("auto"), std::nullopt);
  EXPECT_EQ(CommPathOf(""), std::nullopt);
}

}  // namespace
}  // namespace skein::engine
