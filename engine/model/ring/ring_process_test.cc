// Ring steps between real processes over the UCX fabric: the likelihood of real text is one
// rank's, and a process that is killed in mid-step takes only that step with it.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "engine/device/cpu_device.h"
#include "engine/model/model_engine.h"
#include "engine/model/testing/parity_text.h"
#include "engine/model/testing/ranks/ring_ranks.h"
#include "engine/model/testing/widen_checkpoint.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "gtest/gtest.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr char kFledgling[] = "deploy/models/fledgling";
constexpr int64_t kTokens = 2077;  // 130 blocks, the last of 13 tokens
constexpr int kLongMs = 120'000;

// A rank: what it is told and answers, line by line.
class Process {
 public:
  Process(const std::string& model_dir, int index, const std::string& tls) {
    int fds[2];
    SKEIN_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], 0);
    posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
    std::vector<std::string> words = {"engine/model/testing/ranks/ring_rank", model_dir,
                                      std::to_string(index), tls};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    SKEIN_CHECK(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    fd_ = fds[0];
  }
  ~Process() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    AwaitDeath();
    close(fd_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Reaps it: to its peers a process is there as long as its parent has not.
  void AwaitDeath() {
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  void Tell(const std::string& line) const {
    const std::string text = line + "\n";
    send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
  }
  // "" when it is gone.
  std::string Hear() const {
    std::string line;
    for (char c; recv(fd_, &c, 1, 0) == 1 && c != '\n';) line += c;
    return line;
  }

 private:
  pid_t pid_ = -1;
  int fd_ = -1;
};

struct Plan {
  int64_t tokens = kTokens;
  bool even = true;
  int killed = -1;
  std::vector<RingChunk> chunks;
};

class RingProcess : public ::testing::TestWithParam<std::string> {
 protected:
  void Start(const std::string& model_dir, int count) {
    for (int i = 0; i < count; ++i) {
      processes_.push_back(std::make_unique<Process>(model_dir, i, GetParam()));
    }
    std::string addresses;
    for (const auto& process : processes_) addresses += process->Hear() + " ";
    for (const auto& process : processes_) process->Tell(addresses);
    ModelEngineOptions options;
    options.num_blocks = 200;
    options.max_batch_tokens = 2200;
    auto engine = MakeModelEngine(model_dir, *MakeCpuOps({.threads = 1}), MakeCpuDevice(), options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    plain_ = *std::move(engine);
  }

  // The answers of all members of `plan`, which all others never hear of.
  std::map<int, std::string> Run(const Plan& plan) {
    std::ostringstream line;
    line << group_ << " " << plan.tokens << " " << plan.even << " " << plan.killed << " "
         << kLongMs;
    group_ += 10 * plan.chunks.size();
    for (const RingChunk& chunk : plan.chunks) {
      line << " " << chunk.blocks << " " << chunk.tp << " " << chunk.members.size();
      for (const int member : chunk.members) line << " " << member;
    }
    std::map<int, std::string> answers;
    const std::vector<int>& members = plan.chunks.back().members;
    for (const int member : members) processes_[static_cast<size_t>(member)]->Tell(line.str());
    if (plan.killed >= 0) processes_[static_cast<size_t>(plan.killed)]->AwaitDeath();
    for (const int member : members) {
      answers[member] = processes_[static_cast<size_t>(member)]->Hear();
    }
    return answers;
  }

  void ExpectAsOneRank(const Plan& plan, double nll_relative) {
    const RingOutcome expected = RunPlain(*plain_, EvalText(static_cast<size_t>(plan.tokens)));
    double sum = 0.0;
    size_t count = 0;
    int token = -1;
    for (const auto& [member, answer] : Run(plan)) {
      std::istringstream words(answer);
      std::string ok;
      double own = 0.0;
      size_t scored = 0;
      int sampled = -1;
      words >> ok >> own >> scored >> sampled;
      ASSERT_EQ(ok, "OK") << "rank " << member;
      sum += own;
      count += scored;
      if (sampled >= 0) token = sampled;
    }
    ASSERT_EQ(count, expected.logprobs.size());
    EXPECT_NEAR(sum / static_cast<double>(count) / expected.Nll(), 1.0, nll_relative);
    EXPECT_EQ(token, expected.token);
  }

  std::vector<std::unique_ptr<Process>> processes_;
  std::unique_ptr<Engine> plain_;
  uint64_t group_ = 1;
};

std::vector<int> FirstRanks(int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

TEST_P(RingProcess, LikelihoodInF32) {
  const std::string dir = ::testing::TempDir() + "/ring_process_f32";
  WidenCheckpoint(kFledgling, dir);
  Start(dir, 8);
  ExpectAsOneRank({.chunks = {{130, FirstRanks(2)}}}, 1e-5);
  ExpectAsOneRank({.even = false, .chunks = {{40, {1}}, {90, FirstRanks(4)}}}, 1e-5);
  ExpectAsOneRank({.chunks = {{130, FirstRanks(8)}}}, 1e-5);
}

// (SP, TP) = (2, 2), behind a chunk of (1, 2).
TEST_P(RingProcess, LikelihoodInF32WhereNeighboursShareTheDensePart) {
  const std::string dir = ::testing::TempDir() + "/ring_process_shared_f32";
  WidenCheckpoint(kFledgling, dir);
  Start(dir, 4);
  ExpectAsOneRank({.chunks = {{40, {1, 3}, 2}, {90, {0, 3, 2, 1}, 2}}}, 1e-5);
}

TEST_P(RingProcess, LikelihoodInBf16) {
  Start(kFledgling, 8);
  for (const int ranks : {2, 4, 8}) {
    SCOPED_TRACE(ranks);
    ExpectAsOneRank({.chunks = {{31, {0}}, {99, FirstRanks(ranks)}}}, 1e-3);
  }
}

TEST_P(RingProcess, SurvivorsOfAKilledRankGoOn) {
  Start(kFledgling, 4);
  const Plan whole = {.chunks = {{60, {0, 1}}, {70, FirstRanks(4)}}};
  ExpectAsOneRank(whole, 1e-3);
  Plan killed = whole;
  killed.killed = 2;
  for (const auto& [member, answer] : Run(killed)) {
    EXPECT_EQ(answer, member == 2 ? "" : "UNAVAILABLE") << "rank " << member;
  }
  ExpectAsOneRank({.chunks = {{60, {3, 0}}, {70, {3, 0, 1}}}}, 1e-3);
}

TEST_P(RingProcess, AKilledRankOfATensorGroupEndsTheStepOfAll) {
  Start(kFledgling, 4);
  Plan killed = {.chunks = {{60, {0, 1}, 2}, {70, FirstRanks(4), 2}}};
  killed.killed = 3;
  for (const auto& [member, answer] : Run(killed)) {
    EXPECT_EQ(answer, member == 3 ? "" : "UNAVAILABLE") << "rank " << member;
  }
  ExpectAsOneRank({.chunks = {{60, {2, 0}, 2}, {70, {2, 0, 1}}}}, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Ucx, RingProcess, ::testing::Values("self,shm", "self,tcp"),
                         [](const auto& info) { return info.param.substr(5); });

}  // namespace
}  // namespace skein::engine
