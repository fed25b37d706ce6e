// The codec: messages with flipped bits are accepted or refused, and nothing crashes.
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "services/codec/codec.h"
#include "services/codec/testing/good_messages.h"

namespace skein::services {
namespace {

using testing::GoodBatch;
using testing::GoodPlan;
using testing::GoodRegistration;
using testing::GoodSpec;

// Flips random bits in good messages. Whatever still parses is accepted or refused and never
// crashes.
template <typename Message>
void FlipBytes(const Message& good, int rounds) {
  std::mt19937_64 random(1);
  const std::string bytes = good.SerializeAsString();
  for (int i = 0; i < rounds; ++i) {
    std::string spoiled = bytes;
    for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips) {
      spoiled[random() % spoiled.size()] = static_cast<char>(random());
    }
    Message message;
    if (!message.ParseFromString(spoiled)) continue;
    const auto decoded = FromProto(message);
    if (!decoded.ok()) {
      EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST(SpoiledMessages, SpoiledMessagesAreAcceptedOrRefused) {
  v1::SubmitRequest submit;
  submit.set_spec(GoodSpec().SerializeAsString());
  FlipBytes(submit, 2000);
  FlipBytes(GoodRegistration(), 2000);
  FlipBytes(GoodPlan(), 2000);
  FlipBytes(GoodBatch(), 2000);
}

}  // namespace
}  // namespace skein::services
