// StreamTokens of a running decode-worker, over real gRPC: credit, detach, break, and what a router
// may say wrongly.
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/decode_worker.grpc.pb.h"
#include "services/worker/testing/emulated_decode_worker.h"

namespace skein::services {
namespace {

using Sequence = v1::TokenBatch::Sequence;

constexpr int64_t kLong = 20'000;  // tokens; far from done when a test's next word comes

// One StreamTokens call, read by the test's thread.
class TokenReader {
 public:
  explicit TokenReader(v1::DecodeWorker::Stub* stub) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    stream_ = stub->StreamTokens(&context_);
  }
  ~TokenReader() { Cancel(); }

  void Attach(uint64_t serial, uint64_t credit) {
    v1::TokenStreamRequest request;
    auto* attach = Named(request.add_attach(), serial);
    attach->set_credit(credit);
    EXPECT_TRUE(stream_->Write(request));
  }
  // As a router that attaches again after a break, and has so many tokens. What comes is compared
  // from the last one of these on.
  void AttachFrom(uint64_t serial, uint64_t credit, std::vector<int32_t> received = {},
                  uint64_t incarnation = 0) {
    v1::TokenStreamRequest request;
    auto* attach = Named(request.add_attach(), serial);
    attach->set_credit(credit);
    attach->set_from_index(received.size());
    attach->set_incarnation(incarnation);
    if (!received.empty()) received.pop_back();
    tokens[serial] = std::move(received);
    EXPECT_TRUE(stream_->Write(request));
  }
  void Credit(uint64_t serial, uint64_t more) {
    v1::TokenStreamRequest request;
    Named(request.add_credit(), serial)->set_more(more);
    EXPECT_TRUE(stream_->Write(request));
  }
  void Detach(uint64_t serial) {
    v1::TokenStreamRequest request;
    Named(request.add_detach(), serial);
    EXPECT_TRUE(stream_->Write(request));
  }
  void Write(const v1::TokenStreamRequest& request) { stream_->Write(request); }

  // Read until the end, or so many tokens, of `serial` have come. False: they will not.
  bool ReadToEndOf(uint64_t serial) {
    v1::TokenBatch batch;
    while (ends.count(serial) == 0) {
      if (!stream_->Read(&batch)) return false;
      Take(batch);
    }
    return true;
  }
  bool ReadTokensOf(uint64_t serial, size_t count) {
    v1::TokenBatch batch;
    while (tokens[serial].size() < count) {
      if (ends.count(serial) > 0) return false;
      if (!stream_->Read(&batch)) return false;
      Take(batch);
    }
    return true;
  }
  void Cancel() {
    if (over_) return;
    context_.TryCancel();
    End();
  }
  grpc::Status End() {
    v1::TokenBatch batch;
    while (stream_->Read(&batch)) {
    }
    over_ = true;
    return stream_->Finish();
  }

  std::map<uint64_t, std::vector<int32_t>> tokens;  // by serial
  std::map<uint64_t, v1::TokenBatch::Finished> ends;

 private:
  template <typename Change>
  static Change* Named(Change* change, uint64_t serial) {
    change->mutable_id()->set_router(1);
    change->mutable_id()->set_serial(serial);
    change->set_epoch(1);
    return change;
  }

  void Take(const v1::TokenBatch& batch) {
    for (const Sequence& sequence : batch.sequences()) {
      std::vector<int32_t>& to = tokens[sequence.id().serial()];
      EXPECT_EQ(sequence.first_index(), to.size());
      EXPECT_EQ(ends.count(sequence.id().serial()), 0u) << "something after the end";
      to.insert(to.end(), sequence.tokens().begin(), sequence.tokens().end());
      if (sequence.has_finished()) ends[sequence.id().serial()] = sequence.finished();
    }
  }

  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::TokenStreamRequest, v1::TokenBatch>> stream_;
  bool over_ = false;
};

class StreamTokens : public ::testing::Test {
 protected:
  explicit StreamTokens(WorkerEngine engine = testing::EmulatedWorker(8192, 2 * kLong))
      : worker_(std::move(engine), Config(), 1024) {}

  void Run(uint64_t serial, int64_t max_tokens) { worker_.Run(serial, max_tokens); }

  scheduler::DecodeSnapshot Look() {
    scheduler::DecodeSnapshot out;
    const absl::Status invariants = worker_.shell().CheckInvariants();
    EXPECT_TRUE(invariants.ok()) << invariants;
    EXPECT_TRUE(worker_.shell().Inspect([&out](const scheduler::DecodeSnapshot& snapshot,
                                               const absl::Status&) { out = snapshot; }));
    return out;
  }
  bool AwaitIdle() {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < limit) {
      const scheduler::DecodeSnapshot snapshot = Look();
      if (snapshot.running == 0 && snapshot.blocks.free == snapshot.blocks.total) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  static scheduler::DecodeConfig Config() {
    scheduler::DecodeConfig config;
    config.membership.identity.incarnation = {5};
    return config;
  }

  testing::EmulatedDecodeWorker worker_;
};

// It leaves although a router does not take the tokens of a request that ended with the engine.
TEST(StreamTokensOfAFailedEngine, ARouterThatReadsNoMoreDoesNotKeepTheWorker) {
  constexpr int32_t kFails = 13;
  scheduler::DecodeConfig config;
  config.engine.last_words_us = 100 * scheduler::kMillisecondUs;
  testing::EmulatedDecodeWorker worker(
      testing::EmulatedWorker(8192, 2 * kLong, {.fail_token = kFails}), config, 1024);
  TokenReader router(worker.stub());
  worker.Run(1, kLong);
  router.Attach(1, 3);
  ASSERT_TRUE(router.ReadTokensOf(1, 3));  // more are sampled, for which it has no credit
  worker.Run(2, kLong, kFails);
  worker.AwaitDrained();
  EXPECT_EQ(router.ends.count(1), 0u);
}

TEST_F(StreamTokens, ASequenceWithoutCreditDoesNotHoldUpTheOthers) {
  constexpr int64_t kTokens = 500;
  TokenReader router(worker_.stub());
  Run(1, kTokens);
  Run(2, kTokens);
  router.Attach(1, 3);
  router.Attach(2, kTokens);
  ASSERT_TRUE(router.ReadToEndOf(2));
  EXPECT_EQ(router.tokens[2].size(), static_cast<size_t>(kTokens));
  EXPECT_EQ(router.ends[2].reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(router.ends[2].output_tokens(), static_cast<uint64_t>(kTokens));
  EXPECT_LE(router.tokens[1].size(), 3u);
  // It was computed on all the same, and ends where it samples no more.
  ASSERT_TRUE(AwaitIdle());
  router.Credit(1, 5);
  ASSERT_TRUE(router.ReadTokensOf(1, 8));
  EXPECT_EQ(router.tokens[1].size(), 8u);
  router.Credit(1, kTokens);
  ASSERT_TRUE(router.ReadToEndOf(1));
  EXPECT_EQ(router.tokens[1].size(), static_cast<size_t>(kTokens));
  EXPECT_EQ(router.tokens[1], router.tokens[2]) << "the same prompt";
}

TEST_F(StreamTokens, ADetachEndsItsRequestAndNoOther) {
  TokenReader router(worker_.stub());
  router.Detach(1);  // before its attach: ignored
  Run(1, kLong);
  Run(2, 200);
  router.Attach(1, 10);
  router.Attach(2, kLong);
  ASSERT_TRUE(router.ReadTokensOf(1, 1));
  router.Detach(1);
  ASSERT_TRUE(router.ReadToEndOf(2));
  EXPECT_EQ(router.tokens[2].size(), 200u);
  EXPECT_EQ(router.ends.count(1), 0u);
  EXPECT_TRUE(AwaitIdle());
}

TEST_F(StreamTokens, TheEndOfTheStreamEndsItsRequestsAndNotThoseOfOthers) {
  TokenReader other(worker_.stub());
  Run(3, 300);
  other.Attach(3, kLong);
  {
    TokenReader router(worker_.stub());
    Run(1, kLong);
    Run(2, kLong);
    router.Attach(1, kLong);
    router.Attach(2, kLong);
    ASSERT_TRUE(router.ReadTokensOf(1, 1));
    ASSERT_TRUE(router.ReadTokensOf(2, 1));
  }  // cancels the call
  ASSERT_TRUE(other.ReadToEndOf(3));
  EXPECT_EQ(other.tokens[3].size(), 300u);
  EXPECT_TRUE(AwaitIdle());
  EXPECT_LT(Look().output_tokens, 2u * uint64_t{kLong});
}

TEST_F(StreamTokens, ARouterThatAttachesAgainGetsTheRestOfTheSameTokens) {
  constexpr int64_t kTokens = 400;
  TokenReader reference(worker_.stub());
  Run(1, kTokens);
  reference.Attach(1, kLong);
  ASSERT_TRUE(reference.ReadToEndOf(1));
  Run(2, kTokens);  // the same prompt
  std::vector<int32_t> received;
  {
    TokenReader router(worker_.stub());
    router.AttachFrom(2, 100);
    ASSERT_TRUE(router.ReadTokensOf(2, 10));
    received = router.tokens[2];
    received.resize(7);  // the rest was lost with the stream
  }                      // cancels the call
  TokenReader router(worker_.stub());
  router.AttachFrom(2, kLong, received);
  ASSERT_TRUE(router.ReadToEndOf(2));
  EXPECT_EQ(router.tokens[2], reference.tokens[1]);
  EXPECT_EQ(router.ends[2].reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_TRUE(AwaitIdle());
}

TEST_F(StreamTokens, TheNewStreamTakesOverFromOneThatIsStillOpen) {
  TokenReader old(worker_.stub()), router(worker_.stub());
  Run(1, 300);
  old.AttachFrom(1, 10);
  ASSERT_TRUE(old.ReadTokensOf(1, 10));
  const std::vector<int32_t> received = old.tokens[1];
  router.AttachFrom(1, kLong, received);
  ASSERT_TRUE(router.ReadToEndOf(1));
  EXPECT_EQ(router.tokens[1].size(), 300u);
  EXPECT_TRUE(std::equal(received.begin(), received.end(), router.tokens[1].begin()));
}

// Whose request would take minutes.
class SlowStreamTokens : public StreamTokens {
 protected:
  static engine::EmulatedOptions Slow() {
    engine::EmulatedOptions options;
    options.kv = {{.num_layers = 2,
                   .kv_heads = 1,
                   .head_dim = 8,
                   .block_tokens = 16,
                   .dtype = engine::DType::kF32},
                  8192};
    options.max_positions = 2 * kLong;
    options.times.decode.step_s = 0.01;
    return options;
  }
  SlowStreamTokens() : StreamTokens(testing::EmulatedWorker(Slow())) {}
};

TEST_F(SlowStreamTokens, WhatNobodyAttachesToAgainEnds) {
  Run(1, kLong);
  {
    TokenReader router(worker_.stub());
    router.AttachFrom(1, kLong);
    ASSERT_TRUE(router.ReadTokensOf(1, 1));
  }
  EXPECT_TRUE(AwaitIdle());
  EXPECT_LT(Look().output_tokens, uint64_t{kLong});
  TokenReader late(worker_.stub());
  late.AttachFrom(1, kLong, {1});
  ASSERT_TRUE(late.ReadToEndOf(1));
  EXPECT_EQ(late.ends[1].failure().code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(StreamTokens, AnAttachThatMeansAnotherProcessIsRefused) {
  Run(1, 10);
  TokenReader router(worker_.stub());
  router.AttachFrom(1, kLong, {}, /*incarnation=*/77);
  ASSERT_TRUE(router.ReadToEndOf(1));
  EXPECT_EQ(router.ends[1].failure().code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(StreamTokens, AnUnknownOrTakenRequestEndsAloneAtOnce) {
  TokenReader router(worker_.stub()), other(worker_.stub());
  Run(1, kLong);  // it runs to the end of the test
  router.Attach(1, 1);
  ASSERT_TRUE(router.ReadTokensOf(1, 1));
  router.Attach(9, 1);
  ASSERT_TRUE(router.ReadToEndOf(9));
  EXPECT_EQ(router.ends[9].failure().code(), grpc::StatusCode::NOT_FOUND);
  other.Attach(1, 1);
  ASSERT_TRUE(other.ReadToEndOf(1));
  EXPECT_EQ(other.ends[1].failure().code(), grpc::StatusCode::ALREADY_EXISTS);
  router.Credit(1, 300);
  ASSERT_TRUE(router.ReadTokensOf(1, 300));
  EXPECT_EQ(router.ends.count(1), 0u) << "it is not disturbed";
}

TEST_F(StreamTokens, AMalformedRequestEndsTheStreamByName) {
  TokenReader router(worker_.stub());
  Run(1, kLong);
  router.Attach(1, 1);
  ASSERT_TRUE(router.ReadTokensOf(1, 1));
  v1::TokenStreamRequest request;
  request.add_detach()->mutable_id()->set_router(1);
  router.Write(request);
  const grpc::Status status = router.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "id.serial: is 0");
  EXPECT_TRUE(AwaitIdle()) << "its request has ended with it";
}

TEST_F(StreamTokens, AStoppingWorkerEndsItsStreamsUnavailable) {
  TokenReader router(worker_.stub());
  Run(1, kLong);
  router.Attach(1, 1);
  ASSERT_TRUE(router.ReadTokensOf(1, 1));
  worker_.shell().Stop();
  EXPECT_EQ(router.End().error_code(), grpc::StatusCode::UNAVAILABLE);
  TokenReader late(worker_.stub());
  EXPECT_EQ(late.End().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

}  // namespace
}  // namespace skein::services
