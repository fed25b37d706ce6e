// Ranks that share weights as processes: the same NLL and tokens as with all weights, memory that
// is really freed, and owners that are killed or stopped at named points.
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "engine/model/testing/parity_text.h"
#include "engine/testing/line_process.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::engine {
namespace {

std::vector<int64_t> Numbers(const std::string& line) {
  std::istringstream words(line);
  std::vector<int64_t> numbers;
  for (int64_t number; words >> number;) numbers.push_back(number);
  return numbers;
}

class SharedProcessTest : public ::testing::Test {
 protected:
  SharedProcessTest() {
    std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    for (char& c : test) c = c == '/' ? '_' : c;
    dir_ = ::testing::TempDir() + "/shared_process_" + test;
    std::filesystem::remove_all(dir_);
  }
  ~SharedProcessTest() override {
    ranks_.clear();
    std::filesystem::remove_all(dir_);
  }

  // A checkpoint of this test's own, which it may break.
  void UseFledgling() {
    std::filesystem::copy(std::filesystem::canonical(kParityModelDir), dir_,
                          std::filesystem::copy_options::recursive);
  }
  void UseLarger() {
    const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                   {"hidden_size", 256},
                                   {"intermediate_size", 5120},
                                   {"num_hidden_layers", 8},
                                   {"num_attention_heads", 4},
                                   {"num_key_value_heads", 2},
                                   {"vocab_size", 2048},
                                   {"max_position_embeddings", 2048}};
    ASSERT_TRUE(
        tools::WriteRandomCheckpoint(dir_, config, {.dtype = DType::kBF16, .seed = 3}).ok());
  }
  void Start(size_t count) {
    for (size_t rank = 0; rank < count; ++rank) {
      ranks_.push_back(std::make_unique<LineProcess>(
          std::vector<std::string>{"engine/model/sharing/testing/shared_rank", dir_}));
    }
    for (const auto& rank : ranks_) ASSERT_EQ(rank->Hear(), "ready");
  }
  // No rank has it mapped: their weights are their own.
  void BreakCheckpoint() {
    const std::string file = dir_ + "/model.safetensors";
    std::filesystem::permissions(file, std::filesystem::perms::owner_write,
                                 std::filesystem::perm_options::add);
    std::filesystem::resize_file(file, 0);
  }

  std::string Ask(size_t rank, const std::string& line) {
    ranks_[rank]->Tell(line);
    return ranks_[rank]->Hear().value_or("gone");
  }
  std::vector<std::string> AskAll(const std::string& line) {
    for (const auto& rank : ranks_) rank->Tell(line);
    std::vector<std::string> answers;
    for (const auto& rank : ranks_) answers.push_back(rank->Hear().value_or("gone"));
    return answers;
  }
  void Order(const std::string& line) {
    for (const std::string& answer : AskAll(line)) ASSERT_EQ(answer, "OK") << line;
  }
  void Enter(const std::string& mode) {
    std::string offers;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      offers +=
          " " + Ask(rank, "offer " + std::to_string(rank) + " " + std::to_string(ranks_.size()));
    }
    Order("enter " + std::to_string(++epoch_) + " " + mode + offers);
  }
  void SwitchTo(const std::string& mode) {
    Order("switch " + std::to_string(++epoch_) + " " + mode);
  }

  std::string dir_;
  std::vector<std::unique_ptr<LineProcess>> ranks_;
  int epoch_ = 0;
};

TEST_F(SharedProcessTest, RealTextIsScoredAndAnsweredAlikeWithOwnersAlone) {
  UseFledgling();
  Start(2);
  BreakCheckpoint();
  const std::vector<std::string> score = AskAll("score");
  EXPECT_EQ(score[0], score[1]);
  std::string answers;
  for (const int32_t id : ParityAnswers()) answers += std::to_string(id) + " ";
  for (const std::string mode : {"was", "cas"}) {
    Enter(mode);
    EXPECT_EQ(AskAll("score"), score) << mode;
    EXPECT_EQ(AskAll("greedy"), std::vector<std::string>(2, answers)) << mode;
    Order("leave " + std::to_string(++epoch_));
  }
  EXPECT_EQ(AskAll("score"), score);
}

TEST_F(SharedProcessTest, FourRanksSwitchAndGoOn) {
  UseFledgling();
  Start(4);
  BreakCheckpoint();
  const std::vector<std::string> expected = AskAll("decode 5 30");
  Enter("was");
  EXPECT_EQ(AskAll("decode 5 30"), expected);
  for (const std::string mode : {"cas", "was", "cas"}) {
    SwitchTo(mode);
    EXPECT_EQ(AskAll("decode 5 30"), expected);
  }
  Order("leave " + std::to_string(++epoch_));
  EXPECT_EQ(AskAll("decode 5 30"), expected);
}

// 60 MiB of feed-forward weights in 8 layers: each of 2 ranks keeps half, and slots of a layer.
TEST_F(SharedProcessTest, PagesAreTheSystemsAgain) {
  constexpr int64_t kLayerKib = 3 * 256 * 5120 * 2 / 1024;
  // Buffers for the rows of two calls: f32 of gate and up, and bf16; in and out.
  constexpr int64_t kServingKib = 2 * 64 * (5120 * 10 + 256 * 6) / 1024;
  constexpr int64_t kNoise = 4096;  // KiB: stacks and heaps of threads
  UseLarger();
  Start(2);
  BreakCheckpoint();
  const auto expected = AskAll("decode 5 4");
  std::vector<std::vector<int64_t>> before, shared, after;
  const auto measure = [&](std::vector<std::vector<int64_t>>* to) {
    for (const std::string& line : AskAll("memory")) to->push_back(Numbers(line));
  };
  measure(&before);
  Enter("was");
  EXPECT_EQ(AskAll("decode 5 4"), expected);
  measure(&shared);
  Order("leave " + std::to_string(++epoch_));
  EXPECT_EQ(AskAll("decode 5 4"), expected);
  measure(&after);
  int64_t pss_before = 0, pss_shared = 0;
  for (size_t rank = 0; rank < 2; ++rank) {
    // Of 8 layers none is anonymous memory any more, but a slot's worth of one.
    EXPECT_LE(shared[rank][2], before[rank][2] - 7 * kLayerKib + kNoise) << rank;
    // What it owns is mapped by both.
    EXPECT_LE(shared[rank][1], before[rank][1] - 7 * kLayerKib + kNoise) << rank;
    EXPECT_GE(shared[rank][3] - before[rank][3], (3 * kLayerKib - kServingKib - 64) * 1024) << rank;
    EXPECT_EQ(after[rank][3], before[rank][3]) << rank;
    pss_before += before[rank][0];
    pss_shared += shared[rank][0];
  }
  // Of 16 copies of a layer 8 are left, and 2 slots.
  EXPECT_LE(pss_shared, pss_before - 6 * kLayerKib + 2 * kNoise);
}

class StruckOwnerTest : public SharedProcessTest,
                        public ::testing::WithParamInterface<std::tuple<std::string, bool>> {};

// Rank 1 of 3 is killed in a step of its own, or while it serves; the others say the same, from the
// checkpoint or, where that cannot be read, from the memory that they still map.
TEST_P(StruckOwnerTest, KilledItIsDoneWithout) {
  const auto& [where, file] = GetParam();
  UseFledgling();
  Start(3);
  if (!file) BreakCheckpoint();
  const auto expected = AskAll("decode 5 30");
  Enter(where == "serve" ? "cas" : "was");
  EXPECT_EQ(AskAll("decode 5 30"), expected);
  Ask(1, "strike " + where + " 30 " + std::to_string(SIGKILL));
  ranks_[1]->Tell("decode 5 30");
  for (const size_t rank : {0, 2}) ranks_[rank]->Tell("decode 5 30");
  for (const size_t rank : {0, 2}) EXPECT_EQ(ranks_[rank]->Hear(), expected[rank]);
  EXPECT_EQ(ranks_[1]->Hear(), std::nullopt);
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(Ask(rank, "decode 5 30"), expected[rank]);
    const std::vector<int64_t> counts = Numbers(Ask(rank, "counts"));
    EXPECT_EQ(counts[1] > 0, file);
  }
  ++epoch_;
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(Ask(rank, "leave " + std::to_string(epoch_)), "OK");
    EXPECT_EQ(Ask(rank, "decode 5 30"), expected[rank]);
  }
}

// Stopped while it serves, its weights are read; when it goes on it serves again.
TEST_F(SharedProcessTest, AStoppedOwnerIsReadFromUntilItGoesOn) {
  UseFledgling();
  Start(2);
  BreakCheckpoint();
  const auto expected = AskAll("decode 5 30");
  Enter("cas");
  Ask(1, "strike serve 20 " + std::to_string(SIGSTOP));
  EXPECT_EQ(Ask(0, "decode 5 30"), expected[0]);
  EXPECT_TRUE(ranks_[1]->Struck());
  std::vector<int64_t> counts = Numbers(Ask(0, "counts"));
  EXPECT_GT(counts[0], 0);
  EXPECT_GE(counts[2], 1);
  ranks_[1]->Continue();
  const int64_t served = Numbers(Ask(1, "counts"))[3];
  // The first steps may still find the answer missing.
  for (int64_t now = served; now == served; now = Numbers(Ask(1, "counts"))[3]) {
    ASSERT_EQ(Ask(0, "decode 5 30"), expected[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(Points, StruckOwnerTest,
                         ::testing::Combine(::testing::Values("step", "serve"), ::testing::Bool()),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  (std::get<1>(info.param) ? "WithFile" : "WithoutFile");
                         });

}  // namespace
}  // namespace skein::engine
