// Writers that are stopped in the middle of a put, and go on after the blocks' next owner has
// committed, while it decodes: they change nothing of it.
//
// A pool of slots, as a decode instance has one of blocks. In each round a slot is granted to the
// late writer, which stops; its grant is closed; another writer gets a slot that is free, fills it
// and commits; the late one goes on while the slot is read again and again. Where the target
// applies the bytes the other one gets the very slot of the late one. Where a writer writes by
// itself, its slot stays in quarantine until it has gone on: then the next owner gets it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/transport/testing/late_order.h"
#include "engine/transport/testing/target.h"
#include "engine/transport/testing/testing_options.h"
#include "engine/transport/ucx/ucx_transport.h"
#include "scheduler/vocabulary/check.h"

extern char** environ;

namespace skein::engine {
namespace {

using namespace std::chrono_literals;

constexpr int kLatePuts = 1000;
constexpr size_t kSlotBytes = 2 * kLatePieces * kLatePieceBytes;

class LateWriter {
 public:
  explicit LateWriter(std::string tls) {
    int fds[2];
    SKEIN_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
    const int theirs = fcntl(fds[1], F_DUPFD_CLOEXEC, 64);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, theirs, 3);
    char path[] = "engine/transport/testing/late_writer";
    char* const argv[] = {path, tls.data(), nullptr};
    SKEIN_CHECK(posix_spawn(&pid_, path, &actions, nullptr, argv, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(theirs);
    close(fds[1]);
    fd_ = fds[0];
  }
  ~LateWriter() {
    Kill();
    close(fd_);
  }

  // Returns when it begins.
  void Order(const LateOrder& order, const std::string& description) {
    std::string message(reinterpret_cast<const char*>(&order), sizeof order);
    message += description;
    SKEIN_CHECK(send(fd_, message.data(), message.size(), 0) > 0);
    SKEIN_CHECK(Answer(0) == 'b');
  }
  // 0: none yet.
  char Answer(int flags = MSG_DONTWAIT) {
    char answer = 0;
    return recv(fd_, &answer, 1, flags) == 1 ? answer : '\0';
  }
  void Stop() { kill(pid_, SIGSTOP); }
  void WaitUntilStopped() {
    int status = 0;
    SKEIN_CHECK(waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status));
  }
  void Continue() { kill(pid_, SIGCONT); }
  void Kill() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  int fd_ = -1;
};

struct Way {
  const char* name;
  const char* tls;
  size_t region;       // of the target: 0 is mapped, if that can be
  bool writes_itself;  // and so is waited for
  bool stops_itself;   // in the middle of a copy; else it is stopped at a random time
};

class Late : public testing::TestWithParam<Way> {
 protected:
  Late()
      : target_(SpawnProcessTarget(GetParam().tls)),
        other_(MakeUcxTransport(TestingOptions(GetParam().tls)).value()),
        memory_(other_->Register(nullptr, kSlotBytes).value()) {
    for (size_t slot = 0; (slot + 1) * kSlotBytes <= kTargetRegionBytes[1]; ++slot) {
      free_.insert(slot);
    }
  }

  size_t TakeSlot() { return free_.extract(free_.begin()).value(); }
  LateOrder OrderFor(size_t slot, uint8_t byte) {
    const int stop_at = GetParam().stops_itself ? static_cast<int>(random_() % kLatePieces) : -1;
    return {GetParam().region, slot * kSlotBytes, stop_at, byte};
  }
  void StopIt(LateWriter* writer) {
    if (!GetParam().stops_itself) {
      std::this_thread::sleep_for(std::chrono::microseconds(random_() % 200));
      writer->Stop();
    }
    writer->WaitUntilStopped();
  }
  // The slot's next owner: its writer puts all of it, and it has arrived.
  void Commit(size_t slot, uint8_t byte) {
    const GrantId grant{next_grant_++};
    const auto peer = other_->Connect(target_->DescribeUnder(grant));
    ASSERT_TRUE(peer.ok()) << peer.status();
    std::memset(memory_.base, byte, kSlotBytes);
    const TransferPiece piece = {memory_.id, 0, peer->regions.at(GetParam().region),
                                 slot * kSlotBytes, kSlotBytes};
    ASSERT_TRUE(other_->PostUnder(grant, peer->id, TransferOp::kPut, {&piece, 1}, 60s).ok());
    std::vector<TransferCompletion> ended;
    while (ended.empty()) other_->Poll(1, 60s, &ended);
    ASSERT_TRUE(ended[0].status.ok()) << ended[0].status;
    target_->CloseGrant(grant);
    while (!target_->IsClosed(grant)) other_->Poll(0, 1ms, &ended);
  }
  void ExpectIntact(size_t slot, uint8_t byte, int round) {
    ASSERT_EQ(target_->Read(GetParam().region, slot * kSlotBytes, kSlotBytes),
              std::string(kSlotBytes, static_cast<char>(byte)))
        << "round " << round;
  }
  char DecodeUntilItEnds(LateWriter* writer, size_t slot, uint8_t byte, int round) {
    char answer = 0;
    while (answer == 0 && !HasFatalFailure()) {
      answer = writer->Answer();
      ExpectIntact(slot, byte, round);
    }
    return answer;
  }

  const std::unique_ptr<TestingTarget> target_;
  const std::unique_ptr<Transport> other_;
  const Region memory_;
  std::set<size_t> free_;
  uint64_t next_grant_ = 1;
  std::mt19937 random_{20261123};
};

TEST_P(Late, AStoppedWriterThatGoesOnChangesNothing) {
  LateWriter writer(GetParam().tls);
  int late = 0;
  for (int round = 0; late < kLatePuts && !HasFatalFailure(); ++round) {
    const auto byte = static_cast<uint8_t>(round % 200 + 1);
    const size_t slot = TakeSlot();
    const GrantId grant{next_grant_++};
    writer.Order(OrderFor(slot, 255), target_->DescribeUnder(grant));
    StopIt(&writer);
    target_->CloseGrant(grant);
    if (!GetParam().writes_itself) target_->WaitUntilClosed(grant);
    // In the middle of a copy it holds the permission, so nobody else may have the slot.
    const bool waits = GetParam().writes_itself && GetParam().stops_itself;
    if (waits) {
      EXPECT_FALSE(target_->IsClosed(grant));
    } else {
      free_.insert(slot);
    }
    const size_t next = TakeSlot();
    Commit(next, byte);
    writer.Continue();
    const char end = DecodeUntilItEnds(&writer, next, byte, round);
    EXPECT_TRUE(end == 'c' || end == 'o') << end << ", round " << round;
    late += end == 'c' || waits;
    free_.insert(next);
    if (!waits) continue;
    target_->WaitUntilClosed(grant);
    Commit(slot, byte);
    ExpectIntact(slot, byte, round);
    free_.insert(slot);
  }
}

// The end of its process is as good as its word.
TEST_P(Late, AStoppedWriterThatIsKilledGivesItsBlocksBack) {
  for (int round = 0; round < 20; ++round) {
    LateWriter writer(GetParam().tls);
    const GrantId grant{next_grant_++};
    writer.Order(OrderFor(0, 255), target_->DescribeUnder(grant));
    StopIt(&writer);
    target_->CloseGrant(grant);
    if (GetParam().writes_itself && GetParam().stops_itself) {
      EXPECT_FALSE(target_->IsClosed(grant));
    }
    writer.Kill();
    target_->WaitUntilClosed(grant);
    Commit(0, 7);
    ExpectIntact(0, 7, round);
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, Late,
                         testing::Values(Way{"Mapped", "self,shm", 0, true, true},
                                         Way{"Rma", "ucx:self,posix", 0, true, true},
                                         Way{"Ring", "self,shm", 1, true, true},
                                         Way{"Tcp", "self,tcp", 0, false, false}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace skein::engine
