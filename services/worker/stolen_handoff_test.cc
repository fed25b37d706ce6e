// A thief that reaches a decode-worker's port and knows everything about a handoff but its permit:
// the request's id and epoch, the writer's instance and process. Over gRPC, as a thief would.
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "services/permits/permit.h"
#include "services/permits/permit_gate.h"
#include "services/worker/testing/emulated_decode_worker.h"

namespace skein::services {
namespace {

using testing::EmulatedDecodeWorker;
using testing::EmulatedWorker;
using Stub = v1::DecodeWorker::Stub;

constexpr scheduler::RequestId kId = {1, 7};
constexpr scheduler::Epoch kEpoch = {1};
constexpr scheduler::Incarnation kWriter = {104};
constexpr scheduler::Incarnation kDecode = {201};
constexpr scheduler::InstanceId kPrefill = {3};

class StolenHandoffTest : public ::testing::Test {
 protected:
  StolenHandoffTest() : worker_(EmulatedWorker(), Config(), 64) {
    EXPECT_TRUE(worker_.shell().permits()->TakeKey(1, signer_.public_key()).ok());
    auto spec = std::make_shared<scheduler::RequestSpec>();
    spec->id = kId;
    spec->model = "m";
    spec->prompt = {5};
    spec->max_tokens = 4;
    worker_.shell().Post(scheduler::AnnounceCalled{{spec, kEpoch, {kWriter}}, {}});
  }
  static scheduler::DecodeConfig Config() {
    scheduler::DecodeConfig config;
    config.membership.identity.incarnation = kDecode;
    return config;
  }
  std::string Sign() const { return Sign(signer_); }
  static std::string Sign(const PermitSigner& signer) {
    return *signer.Sign({.id = kId,
                         .epoch = kEpoch,
                         .writer = kWriter,
                         .decode = kDecode,
                         .generation = 1,
                         .issued_s = 1,
                         .expires_s = 900});
  }
  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response, const std::string& permit = "") {
    grpc::ClientContext context;
    if (!permit.empty()) context.AddMetadata(kPermitMetadata, permit);
    return (worker_.stub()->*method)(&context, request, response);
  }
  grpc::Status Open(const std::string& permit) {
    scheduler::OpenTransferRequest open;
    open.id = kId;
    open.epoch = kEpoch;
    open.prefill = kPrefill;
    open.incarnation = kWriter;
    open.shape = ShapeOf(worker_.engine().engine->Spec());
    v1::OpenTransferRequest request = ToProto(open);
    request.set_permit(permit);
    opened_.Clear();
    return Call(&Stub::OpenTransfer, request, &opened_);
  }
  grpc::Status Renew(const std::string& permit = "") {
    v1::RenewResponse response;
    return Call(&Stub::Renew, ToProto(scheduler::RenewRequest{kId, kEpoch, kPrefill}), &response,
                permit);
  }
  grpc::Status Abort(const std::string& permit = "") {
    v1::AbortResponse response;
    return Call(&Stub::Abort,
                ToProto(scheduler::AbortRequest{kId, kEpoch, absl::CancelledError("by a thief"),
                                                kPrefill, kWriter}),
                &response, permit);
  }
  grpc::Status Commit(const std::string& permit = "") {
    scheduler::CommitRequest commit;
    commit.id = kId;
    commit.epoch = kEpoch;
    commit.prefill = kPrefill;
    commit.token = 9;
    const engine::KvSpec& kv = worker_.engine().engine->Spec().kv;
    commit.bytes_per_layer.assign(static_cast<size_t>(kv.num_layers), kv.BlockBytes());
    v1::CommitResponse response;
    return Call(&Stub::Commit, ToProto(commit), &response, permit);
  }
  void ExpectDenied(const grpc::Status& status) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << status.error_message();
    EXPECT_NE(status.error_message().find("permit"), std::string::npos) << status.error_message();
  }

  PermitSigner signer_ = *PermitSigner::Make();
  EmulatedDecodeWorker worker_;
  v1::OpenTransferResponse opened_;
};

TEST_F(StolenHandoffTest, WithoutThePermitItGetsNoBlocksAndNoMemoryKeys) {
  ExpectDenied(Open(""));
  EXPECT_EQ(opened_.blocks_size(), 0);
  EXPECT_TRUE(opened_.memory().empty());
  ExpectDenied(Open(std::string(kPermitBytes, 'x')));
  const PermitSigner thief = *PermitSigner::Make();
  ExpectDenied(Open(Sign(thief)));
  EXPECT_TRUE(Open(Sign()).ok()) << "the writer that the orchestrator named";
  EXPECT_GT(opened_.blocks_size(), 0);
  EXPECT_EQ(worker_.shell().permits()->Refused()[0], 1u) << "missing, counted";
}

TEST_F(StolenHandoffTest, TheIdsOfATransferEndNothingAndCommitNothing) {
  ASSERT_TRUE(Abort().ok()) << "answered, and without effect";
  const std::string permit = Sign();
  ASSERT_TRUE(Open(permit).ok()) << "the thief's abort came before it";
  ExpectDenied(Renew());
  ExpectDenied(Abort());
  ExpectDenied(Commit());
  ExpectDenied(Commit(Sign()));  // signed, but not the one of this transfer
  EXPECT_TRUE(Renew(permit).ok());
  EXPECT_TRUE(Commit(permit).ok());
  ExpectDenied(Open(permit));  // replayed
}

}  // namespace
}  // namespace skein::services
