// The codec: token streams between a router and a decode-worker.
#include <functional>
#include <string>

#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "services/codec/codec.h"
#include "services/codec/testing/good_messages.h"

namespace skein::services {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::GoodBatch;
using testing::GoodSpec;

TEST(TokenStreamCodec, ATokenStreamRequestSurvivesBothWays) {
  v1::TokenStreamRequest request;
  v1::TokenStreamRequest::Attach* attach = request.add_attach();
  *attach->mutable_id() = GoodSpec().id();
  attach->set_epoch(3);
  attach->set_credit(64);
  attach->set_traceparent("00-t");
  attach->set_ahead(true);
  attach->set_from_index(0);  // present, as no other value says
  attach->set_incarnation(11);
  attach->set_stream(4);
  v1::TokenStreamRequest::Credit* credit = request.add_credit();
  *credit->mutable_id() = GoodSpec().id();
  credit->set_epoch(3);
  credit->set_more(32);
  credit->set_received(40);
  v1::TokenStreamRequest::Detach* detach = request.add_detach();
  *detach->mutable_id() = GoodSpec().id();
  detach->set_epoch(2);
  const auto decoded = FromProto(request);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(*decoded), request));
  EXPECT_EQ(decoded->attach[0].from_index, 0);
  EXPECT_TRUE(absl::IsInvalidArgument(FromProto(v1::TokenStreamRequest()).status()));
}

TEST(TokenStreamCodec, ATokenBatchSurvivesBothWays) {
  const auto decoded = FromProto(GoodBatch());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(*decoded), GoodBatch()));
}

TEST(TokenStreamCodec, AMalformedTokenBatchIsRefusedByName) {
  const auto named = [](const std::function<void(v1::TokenBatch::Sequence*)>& spoil) {
    v1::TokenBatch batch = GoodBatch();
    spoil(batch.mutable_sequences(1));
    const absl::Status status = FromProto(batch).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    const std::string message(status.message());
    return message.substr(0, message.find(':'));
  };
  EXPECT_EQ(named([](auto* s) { s->clear_id(); }), "id.router");
  EXPECT_EQ(named([](auto* s) { s->clear_epoch(); }), "epoch");
  EXPECT_EQ(named([](auto* s) { s->set_first_index(~0ull); }), "first_index");
  EXPECT_EQ(named([](auto* s) { s->add_tokens(-1); }), "tokens");
  EXPECT_EQ(named([](auto* s) { s->add_sampled(""), s->add_sampled(""); }), "sampled");
  EXPECT_EQ(named([](auto* s) { s->mutable_finished()->set_output_tokens(~0ull); }),
            "finished.output_tokens");
}

}  // namespace
}  // namespace skein::services
