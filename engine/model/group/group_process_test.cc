// A group whose ranks are processes over the UCX fabric: it says what one rank says, in every mode,
// and what is left of it goes on when a rank is killed in the middle of a step.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "engine/device/cpu_device.h"
#include "engine/model/model_engine.h"
#include "engine/model/testing/parity_text.h"
#include "engine/model/testing/ranks/group_process.h"
#include "engine/model/testing/widen_checkpoint.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

std::unique_ptr<Engine> Alone(const std::string& dir) {
  auto engine = MakeModelEngine(dir, *MakeCpuOps({.threads = 1, .isa = CpuIsa::kAuto}),
                                MakeCpuDevice(), ParityPool());
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

template <typename Number>
std::vector<Number> Numbers(const std::string& line) {
  std::istringstream words(line);
  std::vector<Number> numbers;
  for (Number number; words >> number;) numbers.push_back(number);
  return numbers;
}

class GroupProcessTest : public ::testing::TestWithParam<const char*> {
 protected:
  void Start(const std::string& model_dir, int ranks) {
    for (int r = 0; r < ranks; ++r) {
      ranks_.push_back(std::make_unique<GroupProcess>(model_dir, GetParam()));
    }
    Join();
  }

  // A new group of all processes.
  void Join() {
    std::string addresses;
    for (const auto& rank : ranks_) addresses += " " + rank->address();
    ++id_;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r]->Tell("join " + std::to_string(id_) + " " + std::to_string(r) + addresses);
      ASSERT_EQ(ranks_[r]->Hear(), "OK");
    }
  }

  void TellAll(const std::string& line) {
    for (const auto& rank : ranks_) rank->Tell(line);
  }

  // What all ranks answer, which must be the same.
  std::string HearAll() {
    const std::string first = ranks_[0]->Hear();
    for (size_t r = 1; r < ranks_.size(); ++r) EXPECT_EQ(ranks_[r]->Hear(), first) << r;
    return first;
  }

  void ExpectScores(const std::string& mode, const std::vector<double>& expected,
                    double tolerance) {
    TellAll("score " + mode + " -1");
    const std::vector<double> scores = Numbers<double>(HearAll());
    ASSERT_EQ(scores.size(), expected.size());
    const double largest = LargestDifference(scores, expected);
    EXPECT_LE(largest, tolerance) << mode;
    std::printf("%zu processes, sp tp = %s: NLL %.6f, largest relative difference %.1e\n",
                ranks_.size(), mode.c_str(), scores[0], largest);
  }

  std::vector<std::unique_ptr<GroupProcess>> ranks_;
  uint64_t id_ = 0;
};

TEST_P(GroupProcessTest, FourSayWhatOneSays) {
  const std::string dir = ::testing::TempDir() + "/group_process_f32_" + std::to_string(getpid());
  WidenCheckpoint(kParityModelDir, dir);
  const std::vector<double> expected = ParityScores(*Alone(dir), EvalText(kParityTextTokens));
  Start(dir, 4);
  for (const char* mode : {"1 4", "4 1", "2 2", "0 0"}) ExpectScores(mode, expected, 1e-5);
  std::filesystem::remove_all(dir);
}

TEST_P(GroupProcessTest, TwoAndEightSayWhatOneSays) {
  const std::vector<double> expected =
      ParityScores(*Alone(kParityModelDir), EvalText(kParityTextTokens));
  for (const int ranks : {2, 8}) {
    ranks_.clear();
    Start(kParityModelDir, ranks);
    ExpectScores("0 0", expected, 1e-3);
    TellAll("greedy 0 0");
    EXPECT_EQ(Numbers<int32_t>(HearAll()), ParityAnswers());
  }
}

TEST_P(GroupProcessTest, ARankKilledInAStepFailsItAndTheRestGoOn) {
  const std::vector<double> expected =
      ParityScores(*Alone(kParityModelDir), EvalText(kParityTextTokens));
  Start(kParityModelDir, 4);
  for (size_t r = 0; r < 4; ++r) ranks_[r]->Tell(r == 3 ? "score 2 2 2" : "score 2 2 -1");
  EXPECT_EQ(ranks_.back()->Hear(), "gone");
  ranks_.pop_back();
  EXPECT_EQ(HearAll(), "UNAVAILABLE");
  ranks_.pop_back();  // no group of three runs this model
  Join();
  ExpectScores("2 1", expected, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Wires, GroupProcessTest, ::testing::Values("self,shm", "self,tcp"),
                         [](const auto& info) {
                           return std::string(info.param) == "self,shm" ? "SharedMemory" : "Tcp";
                         });

}  // namespace
}  // namespace skein::engine
