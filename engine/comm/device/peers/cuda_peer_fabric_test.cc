// Ranks on the first GPU, as threads of this process and as processes: "--peer" is the other one,
// told the addresses on its standard input.
#include "engine/comm/device/peers/cuda_peer_fabric.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "engine/comm/testing/gpu_checks.h"
#include "engine/comm/testing/ranks.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

std::unique_ptr<Fabric> MakeFabric() {
  auto fabric = MakeCudaPeerFabric({.tls = "self,shm,tcp"}, 0);
  SKEIN_CHECK_MSG(fabric.ok(), fabric.status().ToString().c_str());
  return *std::move(fabric);
}

absl::Status CheckOnFirst(Communicator* comm) { return CheckOnGpu(comm, 0); }

absl::Status RunRank(Fabric* fabric, const std::vector<std::string>& addresses, int rank) {
  auto group = fabric->MakeGroup({1, 1}, addresses, rank);
  if (!group.ok()) return group.status();
  for (int round = 0; round < 3; ++round) {
    const absl::Status status = CheckOnFirst(group->get());
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

TEST(CudaPeerFabric, ThreadsOnOneGpu) {
  for (const int size : {2, 4}) {
    TestingRanks ranks(MakeFabric, size);
    for (const auto& end : TestingRanks::Run(ranks.GroupOfAll(), CheckOnFirst)) {
      EXPECT_TRUE(end.ok()) << end;
    }
  }
}

TEST(CudaPeerFabric, ARankThatNeverCallsEndsTheCallByTheDeadline) {
  TestingRanks ranks(MakeFabric, 2);
  const auto ends = TestingRanks::Run(ranks.GroupOfAll(), [](Communicator* comm) {
    if (comm->Rank() == 0) return absl::UnavailableError("stalls");
    const GpuFloats data(0, std::vector<float>(1000, 1.0f));
    return comm->AllReduce(data.data(), 1000, DType::kF32,
                           std::chrono::steady_clock::now() + std::chrono::seconds(2));
  });
  EXPECT_TRUE(absl::IsUnavailable(ends[1]) || absl::IsDeadlineExceeded(ends[1])) << ends[1];
}

TEST(CudaPeerFabric, AnotherProcess) {
  int to[2], from[2];
  ASSERT_TRUE(pipe(to) == 0 && pipe(from) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(to[0], 0);
    dup2(from[1], 1);
    for (const int fd : {to[0], to[1], from[0], from[1]}) close(fd);
    execl("/proc/self/exe", "cuda_peer_fabric_test", "--peer", nullptr);
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  const auto fabric = MakeFabric();
  FILE* answers = fdopen(from[0], "r");
  const auto hear = [&] {
    char line[1 << 16] = "";
    if (std::fgets(line, sizeof line, answers) == nullptr) return std::string("gone");
    line[std::strcspn(line, "\n")] = '\0';
    return std::string(line);
  };
  const std::vector<std::string> addresses = {fabric->Address(), absl::HexStringToBytes(hear())};
  const std::string mine = absl::BytesToHexString(addresses[0]) + "\n";
  ASSERT_EQ(write(to[1], mine.data(), mine.size()), static_cast<ssize_t>(mine.size()));
  const absl::Status end = RunRank(fabric.get(), addresses, 0);
  EXPECT_TRUE(end.ok()) << end;
  EXPECT_EQ(hear(), "OK");
  close(to[1]);
  std::fclose(answers);
}

int RunPeer() {
  const auto fabric = MakeFabric();
  std::cout << absl::BytesToHexString(fabric->Address()) << std::endl;
  std::string first;
  std::getline(std::cin, first);
  const absl::Status end =
      RunRank(fabric.get(), {absl::HexStringToBytes(first), fabric->Address()}, 1);
  std::cout << (end.ok() ? "OK" : end.ToString()) << std::endl;
  return end.ok() ? 0 : 1;
}

}  // namespace
}  // namespace skein::engine

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--peer") == 0) return skein::engine::RunPeer();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
