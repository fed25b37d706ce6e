// Steps of a DecodeCore that are launched while another one runs: what the first one's end decides
// too late for the second changes no answer, and no block is given away too early.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <random>

#include "scheduler/worker/testing/decode_core_fixture.h"

namespace skein::scheduler {
namespace {

using testing::DecodeCoreTest;
using testing::DecodeTestConfig;
using testing::Of;
using testing::Spec;

constexpr int32_t kStop = 77;

DecodeConfig Config(bool ahead, int64_t blocks = 10) {
  DecodeConfig config = DecodeTestConfig();
  config.membership.identity.total_blocks = blocks;
  config.launch_ahead = ahead;
  return config;
}

// A core with the engine's side of it: what a step gives is a function of sequence and index, as a
// real engine's is, and a sequence whose token of the step before is missing is refused.
class AheadTest : public DecodeCoreTest {
 protected:
  AheadTest() { Anew(Config(/*ahead=*/true)); }
  void Anew(const DecodeConfig& config) {
    core_ = std::make_unique<DecodeCore>(config);
    Take(core_->Handle(Tick{}, now_));
    Take(core_->Handle(RegisterReplied{{absl::OkStatus(), {3}, 1'000'000'000}}, now_));
  }
  void Feed(const DecodeEvent& event) {
    ++now_;
    Take(core_->Handle(event, now_));
    const absl::Status invariants = core_->CheckInvariants();
    ASSERT_TRUE(invariants.ok()) << invariants;
  }
  void Take(const Effects& effects) {
    for (const EmitToken& token : Of<EmitToken>(effects)) {
      EXPECT_EQ(token.index, static_cast<int64_t>(tokens_[token.id.serial].size()));
      tokens_[token.id.serial].push_back(token.token);
    }
    for (const EndStream& end : Of<EndStream>(effects)) ends_[end.id.serial] = end.status;
    for (const RunStep& step : Of<RunStep>(effects)) in_flight_.push_back(step);
    if (!Of<EngineFailed>(effects).empty()) in_flight_.clear();  // it runs nothing any more
    for (const ReleaseSequence& release : Of<ReleaseSequence>(effects)) {
      for (const RunStep& step : in_flight_) {
        for (const StepSequence& one : step.sequences) {
          EXPECT_NE(one.id, release.id) << "a step in flight has it";
        }
      }
      has_.erase(release.id.serial);
    }
    for (const CloseGrant& grant : Of<CloseGrant>(effects)) Feed(GrantClosed{grant.grant});
    for (const CallReport& report : Of<CallReport>(effects)) {
      Feed(ReportReplied{report.request.serial, {}});
    }
  }
  // Its KV is whole, and its first token is there.
  void Start(const SpecPtr& spec) {
    const uint64_t serial = spec->id.serial;
    Feed(AnnounceCalled{{spec, {5}, {{2}}}, absl::OkStatus()});
    Feed(OpenTransferCalled{Call(),
                            {.id = spec->id,
                             .epoch = {5},
                             .prefill = {1},
                             .incarnation = {2},
                             .shape = DecodeTestConfig().membership.identity.shape}});
    Feed(AttachCalled{{50 + serial}, spec->id, {5}});
    const int64_t bytes = (PromptTokens(*spec) + 3) / 4 * 128;
    Feed(CommitCalled{Call(),
                      {.id = spec->id,
                       .epoch = {5},
                       .bytes_per_layer = {bytes, bytes},
                       .has_token = true,
                       .token = Token(serial, 0),
                       .prefill = {1}}});
  }
  int32_t Token(uint64_t serial, int64_t index) {
    const auto stop = stops_.find(serial);
    if (stop != stops_.end() && stop->second == index) return kStop;
    return static_cast<int32_t>(1000 * static_cast<int64_t>(serial) + index);
  }
  StepResult ResultOf(const StepSequence& sequence) {
    EXPECT_GE(static_cast<int64_t>(sequence.blocks->size()) * 4,
              sequence.position + sequence.count);
    const int64_t index = sequence.position + sequence.count - PromptTokens(*sequence.spec);
    int64_t& has = has_[sequence.id.serial];
    has = std::max(has, static_cast<int64_t>(sequence.output->size()));
    if (index > has) return {.status = absl::InvalidArgumentError("tokens: empty")};
    if (!sequence.sample) return {};
    EXPECT_EQ(index, sequence.token_index);
    const auto fails = fails_.find(sequence.id.serial);
    if (fails != fails_.end() && fails->second <= index) {
      return {.status = absl::InternalError("NaN")};
    }
    has = index + 1;
    return {.token = Token(sequence.id.serial, index), .payload = "p"};
  }
  void EndStep(const absl::Status& status = absl::OkStatus()) {
    ASSERT_FALSE(in_flight_.empty());
    const RunStep step = in_flight_.front();
    in_flight_.pop_front();
    StepDone done{.step = step.step, .status = status, .results = {}};
    for (const StepSequence& sequence : step.sequences) {
      if (!status.ok()) break;
      done.results.push_back(step.probe ? StepResult{.token = 1} : ResultOf(sequence));
    }
    Feed(done);
  }
  void RunToTheEnd() {
    for (int steps = 0; !in_flight_.empty() && steps < 2000; ++steps) EndStep();
    EXPECT_TRUE(in_flight_.empty()) << "the engine still runs";
  }
  int64_t Held() { return core_->Snapshot(now_).blocks.held; }
  std::vector<size_t> InFlight() const {
    std::vector<size_t> sizes;
    for (const RunStep& step : in_flight_) sizes.push_back(step.sequences.size());
    return sizes;
  }

  std::unique_ptr<DecodeCore> core_;
  std::deque<RunStep> in_flight_;
  std::map<uint64_t, int64_t> stops_, fails_;  // by serial, at which index
  std::map<uint64_t, int64_t> has_;            // tokens of output that the engine has
  std::map<uint64_t, std::vector<int32_t>> tokens_;
  std::map<uint64_t, absl::Status> ends_;
};

SpecPtr Stopping(uint64_t serial, int64_t prompt_tokens, int64_t max_tokens) {
  auto spec = Spec(serial, prompt_tokens, max_tokens);
  spec->stop_token_ids = {kStop};
  return spec;
}

TEST_F(AheadTest, AStepIsLaunchedBehindTheOneThatRuns) {
  Start(Spec(1, 4, 10));
  ASSERT_EQ(InFlight(), (std::vector<size_t>{1, 1}));
  EXPECT_EQ(in_flight_[0].sequences[0].position, 4);
  EXPECT_EQ(in_flight_[1].sequences[0].position, 5);
  EXPECT_EQ(in_flight_[1].sequences[0].token_index, 2);
  Start(Spec(2, 4, 10));
  ASSERT_EQ(InFlight(), (std::vector<size_t>{1, 1})) << "never three";
  EndStep();
  EXPECT_EQ(InFlight(), (std::vector<size_t>{1, 2})) << "it joins behind the step that waited";
  RunToTheEnd();
  EXPECT_EQ(tokens_[1].size(), 10u);
  EXPECT_EQ(tokens_[2].size(), 10u);
}

TEST_F(AheadTest, TheLastTokenByMaxTokensIsNotFollowed) {
  Start(Spec(1, 4, 3));
  EXPECT_EQ(InFlight(), (std::vector<size_t>{1, 1}));
  EndStep();
  EXPECT_EQ(InFlight(), (std::vector<size_t>{1}));
  EndStep();
  EXPECT_TRUE(in_flight_.empty());
  EXPECT_EQ(tokens_[1], (std::vector<int32_t>{1000, 1001, 1002}));
  EXPECT_EQ(Held(), 0);
}

TEST_F(AheadTest, AStopTokenDropsTheTokenBehindItAndKeepsItsBlocksUntilThen) {
  stops_[1] = 1;
  Start(Stopping(1, 4, 10));
  EndStep();
  ASSERT_TRUE(ends_.at(1).ok());
  EXPECT_EQ(InFlight(), (std::vector<size_t>{1})) << "no third step has it";
  EXPECT_EQ(Held(), 2) << "a step in flight has them";
  EndStep();
  EXPECT_EQ(Held(), 0);
  EXPECT_EQ(tokens_[1], (std::vector<int32_t>{1000}));
  EXPECT_EQ(core_->Snapshot(now_).output_tokens, 1u) << "what was dropped is not counted";
}

TEST_F(AheadTest, ACancelInTheMiddleKeepsTheBlocksOfBothSteps) {
  Start(Spec(1, 4, 10));
  Feed(CancelCalled{{{7, 1}, {5}, "test"}});
  EXPECT_TRUE(absl::IsCancelled(ends_.at(1)));
  EXPECT_EQ(Held(), 2);
  EndStep();
  EXPECT_EQ(Held(), 2);
  EndStep();
  EXPECT_EQ(Held(), 0);
  EXPECT_TRUE(in_flight_.empty());
}

TEST_F(AheadTest, ASequenceThatFailsIsRefusedInTheStepBehindAndHarmsNobody) {
  fails_[1] = 1;
  Start(Spec(1, 4, 10));
  Start(Spec(2, 4, 10));
  RunToTheEnd();
  EXPECT_EQ(ends_.at(1), absl::InternalError("NaN"));
  EXPECT_TRUE(ends_.at(2).ok());
  EXPECT_EQ(tokens_[2].size(), 10u);
  EXPECT_EQ(Held(), 0);
}

TEST_F(AheadTest, ARouterThatAttachesAgainAfterAFailureGetsThatFailure) {
  fails_[1] = 1;
  Start(Spec(1, 4, 10));
  EndStep();
  ASSERT_EQ(ends_.at(1), absl::InternalError("NaN"));
  Feed(AttachCalled{{99}, {7, 1}, {5}});
  EXPECT_EQ(ends_.at(1), absl::InternalError("NaN"));
}

TEST_F(AheadTest, AnEngineThatFailsEndsBothSteps) {
  Start(Spec(1, 4, 10));
  Start(Spec(2, 4, 10));
  EndStep();
  ASSERT_EQ(InFlight(), (std::vector<size_t>{1, 2}));
  EndStep(absl::InternalError("device"));
  const absl::Status end = absl::UnavailableError("the engine failed: device");
  EXPECT_EQ(ends_.at(1), end);
  EXPECT_EQ(ends_.at(2), end);
  EXPECT_EQ(Held(), 0);
  Feed(StepDone{.step = 3, .status = absl::InternalError("device")});
}

TEST_F(AheadTest, WithoutAFreeBlockNothingIsLaunchedAhead) {
  Anew(Config(true, /*blocks=*/6));
  Start(Spec(1, 7, 9));  // 2 blocks of the 6, in the end 4
  Start(Spec(2, 7, 9));
  while (!in_flight_.empty()) {
    const bool alone = core_->Snapshot(now_).preempted > 0;
    EXPECT_LE(in_flight_.back().sequences.size(), alone ? 1u : 2u);
    EndStep();
  }
  EXPECT_GT(core_->Snapshot(now_).preemptions, 0u);
  for (const uint64_t serial : {1, 2}) {
    ASSERT_EQ(tokens_[serial].size(), 9u);
    for (int64_t i = 0; i < 9; ++i) EXPECT_EQ(tokens_[serial][i], Token(serial, i));
  }
  EXPECT_EQ(Held(), 0);
}

TEST_F(AheadTest, ASequenceThatGrowsKeepsNobodyOut) {
  Anew(Config(/*ahead=*/true, /*blocks=*/100));
  for (uint64_t serial = 1; serial <= 9; ++serial) {  // at each place within a block
    Start(Spec(serial, 4, 30));
    EXPECT_FALSE(tokens_[serial].empty()) << "request " << serial << " was refused";
    EndStep();
  }
  RunToTheEnd();
}

TEST_F(AheadTest, NanInBothStepsIsFollowedByOneProbe) {
  DecodeConfig config = Config(true);
  config.engine.probe_interval_us = 1'000'000;
  config.engine.probe_block = {10};
  in_flight_.clear();
  Anew(config);
  EndStep();  // of the idle engine: a probe
  for (uint64_t serial = 1; serial <= 3; ++serial) {
    fails_[serial] = 1;
    Start(Spec(serial, 4, 10));
    EndStep();
    if (serial < 3) EndStep();
  }
  ASSERT_EQ(in_flight_.size(), 1u) << "launched before the doubt";
  EndStep();
  ASSERT_EQ(in_flight_.size(), 1u);
  EXPECT_TRUE(in_flight_[0].probe);
  EndStep();
  EXPECT_TRUE(core_->Snapshot(now_).engine.ok());
}

// Random requests on a pool that they outgrow: each gets its very tokens, up to its stop, its
// failure or the cancel, and all blocks come back.
TEST_F(AheadTest, RandomRequestsGetTheirTokens) {
  int64_t preemptions = 0, launched_ahead = 0, whole_answers = 0;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    const auto between = [&random](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    Anew(Config(/*ahead=*/true, /*blocks=*/12));
    in_flight_.clear(), stops_.clear(), fails_.clear(), has_.clear();
    tokens_.clear(), ends_.clear();
    std::map<uint64_t, int64_t> limits;
    uint64_t serial = 0;
    while (serial < 12 || !in_flight_.empty()) {
      if (serial < 12 && (in_flight_.empty() || between(0, 3) == 0)) {
        ++serial;
        if (between(0, 1) == 0) stops_[serial] = between(1, 20);
        if (between(0, 5) == 0) fails_[serial] = between(1, 20);
        limits[serial] = between(2, 24);
        Start(Stopping(serial, between(1, 8), limits[serial]));
      }
      if (between(0, 15) == 0)
        Feed(CancelCalled{{{7, static_cast<uint64_t>(between(1, 12))}, {5}, "test"}});
      if (in_flight_.size() == 2) ++launched_ahead;
      if (!in_flight_.empty()) EndStep();
    }
    preemptions += static_cast<int64_t>(core_->Snapshot(now_).preemptions);
    EXPECT_EQ(Held(), 0) << "seed " << seed;
    for (uint64_t one = 1; one <= serial; ++one) {
      whole_answers += ends_[one].ok() ? 1 : 0;  // some are never opened: no room
      const std::vector<int32_t>& tokens = tokens_[one];
      for (size_t i = 0; i < tokens.size(); ++i) {
        ASSERT_EQ(tokens[i], Token(one, static_cast<int64_t>(i))) << "seed " << seed;
      }
      int64_t whole = limits[one];
      if (stops_.count(one) > 0) whole = std::min(whole, stops_[one]);
      const auto size = static_cast<int64_t>(tokens.size());
      EXPECT_LE(size, whole);
      if (absl::IsInternal(ends_[one])) whole = fails_[one];
      if (ends_[one].ok() || absl::IsInternal(ends_[one])) {
        EXPECT_EQ(size, whole) << "seed " << seed << ", request " << one;
      }
    }
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(launched_ahead, 500);
  EXPECT_GT(whole_answers, 50);
}

}  // namespace
}  // namespace skein::scheduler
