#include "services/rpc/message_counters.h"

#include "gtest/gtest.h"
#include "proto/orchestrator.pb.h"

namespace skein::services {
namespace {

class MessageCountersTest : public ::testing::Test {
 protected:
  v1::WorkerMessage FromWorker() {
    v1::WorkerMessage message;
    worker_.Stamp(&message, 0);
    return message;
  }
  v1::OrchestratorMessage FromOrchestrator() {
    v1::OrchestratorMessage message;
    orchestrator_.Stamp(&message, 0);
    return message;
  }

  MessageCounters orchestrator_{7};
  MessageCounters worker_;
};

TEST_F(MessageCountersTest, BothSidesAgree) {
  EXPECT_TRUE(orchestrator_.Take(FromWorker(), 0).ok());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(worker_.Take(FromOrchestrator(), 0).ok());
  EXPECT_EQ(worker_.session(), 7u);
  const v1::WorkerMessage message = FromWorker();
  EXPECT_EQ(message.session(), 7u);
  EXPECT_EQ(message.sequence(), 2u);
  EXPECT_EQ(message.acknowledged(), 3u);
  EXPECT_TRUE(orchestrator_.Take(message, 0).ok());
}

// A client sends before it has the answer to its first message.
TEST_F(MessageCountersTest, MessagesSayZeroUntilTheSessionIsLearnt) {
  const v1::WorkerMessage hello = FromWorker(), early = FromWorker(), late = FromWorker();
  ASSERT_TRUE(orchestrator_.Take(hello, 0).ok());
  const v1::OrchestratorMessage welcome = FromOrchestrator();
  EXPECT_TRUE(orchestrator_.Take(early, 0).ok());
  ASSERT_TRUE(worker_.Take(welcome, 0).ok());
  EXPECT_TRUE(orchestrator_.Take(late, 0).ok()) << "it passed the welcome on its way";
  v1::WorkerMessage message = FromWorker();
  message.set_session(0);
  EXPECT_TRUE(absl::IsInvalidArgument(orchestrator_.Take(message, 0))) << "it acknowledges one";
  message.set_session(7);
  message.set_acknowledged(0);
  EXPECT_TRUE(absl::IsInvalidArgument(orchestrator_.Take(message, 0))) << "it acknowledges none";
  message.set_acknowledged(1);
  EXPECT_TRUE(orchestrator_.Take(message, 0).ok());
}

TEST_F(MessageCountersTest, ASideIsStuckWhenItAcknowledgesNoneOfManyForLong) {
  ASSERT_TRUE(orchestrator_.Take(FromWorker(), 0).ok());
  const int64_t long_us = MessageCounters::kStuckUs;
  v1::OrchestratorMessage message;
  for (uint64_t i = 1; i <= MessageCounters::kUnacknowledgedMax; ++i) {
    EXPECT_FALSE(orchestrator_.Stuck(long_us));  // they are not too many
    orchestrator_.Stamp(&message, 1);
    if (i < 3) {
      ASSERT_TRUE(worker_.Take(message, 1).ok());
    }
  }
  EXPECT_FALSE(orchestrator_.Stuck(long_us));  // one event may send so many
  EXPECT_TRUE(orchestrator_.Stuck(1 + long_us));
  ASSERT_TRUE(orchestrator_.Take(FromWorker(), 9).ok());  // acknowledges two
  for (int i = 0; i < 2; ++i) orchestrator_.Stamp(&message, 10);
  EXPECT_FALSE(orchestrator_.Stuck(8 + long_us));
  EXPECT_TRUE(orchestrator_.Stuck(9 + long_us));
}

TEST_F(MessageCountersTest, AMessageThatIsMissingOrOfAnotherStreamIsNamed) {
  ASSERT_TRUE(orchestrator_.Take(FromWorker(), 0).ok());
  ASSERT_TRUE(worker_.Take(FromOrchestrator(), 0).ok());
  v1::WorkerMessage message = FromWorker();
  const auto refused = [&](const char* field) {
    const absl::Status status = orchestrator_.Take(message, 0);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(std::string(status.message()).find(field), 0u) << status;
  };
  message.set_sequence(3);
  refused("sequence");
  message.set_sequence(1);
  refused("sequence");
  message.set_sequence(2);
  message.set_session(8);
  refused("session");
  message.set_session(7);
  message.set_acknowledged(2);
  refused("acknowledged");
  message.set_acknowledged(1);
  EXPECT_TRUE(orchestrator_.Take(message, 0).ok());
}

}  // namespace
}  // namespace skein::services
