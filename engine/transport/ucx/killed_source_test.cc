// Sources that are killed for real while they put, and what is left of their target for others.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/transport/testing/target.h"
#include "engine/transport/ucx/ucx_transport.h"
#include "scheduler/vocabulary/check.h"

extern char** environ;

namespace skein::engine {
namespace {

using namespace std::chrono_literals;

// Where no writer writes.
constexpr size_t kPlace = (4 << 10) + 100;

// The program `writer`, whose first `puts` puts have ended and whose next has begun.
class WriterProcess {
 public:
  WriterProcess(const std::string& tls, size_t region, int puts, bool far,
                const std::string& description) {
    int fds[2];
    SKEIN_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
    const int theirs = fcntl(fds[1], F_DUPFD_CLOEXEC, 64);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, theirs, 3);
    char path[] = "engine/transport/testing/writer";
    std::string words[] = {tls, std::to_string(region), std::to_string(puts), far ? "far" : "host"};
    char* const argv[] = {
        path, words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
    SKEIN_CHECK(posix_spawn(&pid_, path, &actions, nullptr, argv, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(theirs);
    close(fds[1]);
    SKEIN_CHECK(send(fds[0], description.data(), description.size(), 0) > 0);
    char begun = 0;
    SKEIN_CHECK(recv(fds[0], &begun, 1, 0) == 1);
    close(fds[0]);
  }
  ~WriterProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
};

constexpr int kRounds = 20;

struct Wires {
  const char* name;
  const char* tls;
  TargetMemory memory;
};

class KilledSource : public testing::TestWithParam<Wires> {};

TEST_P(KilledSource, LeavesItsTargetToOthers) {
  const std::string tls = GetParam().tls;
  const auto target = SpawnProcessTarget(tls, GetParam().memory);
  const std::string description = target->Describe();
  const auto other = MakeUcxTransport({.tls = tls});
  ASSERT_TRUE(other.ok()) << other.status();
  const auto memory = (*other)->Register(nullptr, kTargetRegionBytes[1]);
  ASSERT_TRUE(memory.ok()) << memory.status();
  std::mt19937 random(20261122);
  for (int round = 0; round < kRounds; ++round) {
    for (const size_t region : {0u, 1u}) {
      {
        const WriterProcess writer(tls, region, /*puts=*/round % 2, IsShared(GetParam().memory),
                                   description);
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
      }
      const auto peer = (*other)->Connect(description);
      ASSERT_TRUE(peer.ok()) << peer.status();
      for (const size_t to : {0u, 1u}) {
        const TransferPiece piece = {memory->id, 0, peer->regions.at(to), kPlace, 1};
        memory->base[0] = static_cast<std::byte>(round);
        ASSERT_TRUE((*other)->Post(peer->id, TransferOp::kPut, {&piece, 1}, 5s).ok());
        std::vector<TransferCompletion> ended;
        ASSERT_EQ((*other)->Poll(1, 60s, &ended), 1u);
        ASSERT_TRUE(ended[0].status.ok())
            << ended[0].status << ", round " << round << ", region " << to << " after " << region;
        EXPECT_EQ(target->Read(to, kPlace, 1), std::string(1, static_cast<char>(round)));
      }
    }
  }
}

// Straight: by copies of the source's device, from which the others, who have none, are as far as
// ever.
INSTANTIATE_TEST_SUITE_P(Wires, KilledSource,
                         testing::Values(Wires{"SharedMemory", "self,shm", TargetMemory::kHost},
                                         Wires{"Tcp", "self,tcp", TargetMemory::kHost},
                                         Wires{"Direct", "self,shm", TargetMemory::kAllocation}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace skein::engine
