#include "services/rpc/message_counters.h"

#include "gtest/gtest.h"
#include "proto/orchestrator.pb.h"

namespace skein::services {
namespace {

class MessageCountersTest : public ::testing::Test {
 protected:
  v1::WorkerMessage FromWorker() {
    v1::WorkerMessage message;
    worker_.Stamp(&message);
    return message;
  }
  v1::OrchestratorMessage FromOrchestrator() {
    v1::OrchestratorMessage message;
    orchestrator_.Stamp(&message);
    return message;
  }

  MessageCounters orchestrator_{7};
  MessageCounters worker_;
};

TEST_F(MessageCountersTest, BothSidesAgree) {
  EXPECT_TRUE(orchestrator_.Take(FromWorker()).ok());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(worker_.Take(FromOrchestrator()).ok());
  EXPECT_EQ(worker_.session(), 7u);
  EXPECT_EQ(orchestrator_.unacknowledged(), 3u);
  const v1::WorkerMessage message = FromWorker();
  EXPECT_EQ(message.session(), 7u);
  EXPECT_EQ(message.sequence(), 2u);
  EXPECT_EQ(message.acknowledged(), 3u);
  EXPECT_TRUE(orchestrator_.Take(message).ok());
  EXPECT_EQ(orchestrator_.unacknowledged(), 0u);
}

TEST_F(MessageCountersTest, AMessageThatIsMissingOrOfAnotherStreamIsNamed) {
  ASSERT_TRUE(orchestrator_.Take(FromWorker()).ok());
  ASSERT_TRUE(worker_.Take(FromOrchestrator()).ok());
  v1::WorkerMessage message = FromWorker();
  const auto refused = [&](const char* field) {
    const absl::Status status = orchestrator_.Take(message);
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
  EXPECT_TRUE(orchestrator_.Take(message).ok());
}

}  // namespace
}  // namespace skein::services
