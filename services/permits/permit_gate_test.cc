// Attacks on handoffs: each is refused by name, and the writer that the orchestrator named goes on.
#include "services/permits/permit_gate.h"

#include "gtest/gtest.h"
#include "services/permits/permit.h"

namespace skein::services {
namespace {

using Refusal = PermitGate::Refusal;
using scheduler::AbortRequest;
using scheduler::CommitRequest;
using scheduler::OpenTransferRequest;
using scheduler::RenewRequest;

constexpr scheduler::RequestId kId = {7, 12};
constexpr scheduler::Epoch kEpoch = {5};
constexpr scheduler::Incarnation kWriter = {104};
constexpr scheduler::Incarnation kDecode = {201};
constexpr scheduler::InstanceId kPrefill = {3};
constexpr char kHost[] = "10.0.0.4";
constexpr uint64_t kGeneration = 2;

class PermitGateTest : public ::testing::Test {
 protected:
  PermitGateTest() : gate_([this] { return now_s_; }) {
    gate_.SetProcess(kDecode);
    EXPECT_TRUE(gate_.TakeKey(kGeneration, signer_.public_key()).ok());
  }

  Permit Good() const {
    return {.id = kId,
            .epoch = kEpoch,
            .writer = kWriter,
            .decode = kDecode,
            .generation = kGeneration,
            .issued_s = now_s_ + ahead_s_,
            .expires_s = now_s_ + ahead_s_ + 900};
  }
  std::string Sign(const Permit& permit) const { return *signer_.Sign(permit); }
  absl::Status Open(const std::string& permit, const std::string& from = kHost) {
    open_ = {.id = kId, .epoch = kEpoch, .prefill = kPrefill, .incarnation = kWriter};
    return gate_.Open(&open_, {permit, from});
  }
  // Of another request, with a permit that was signed just now.
  absl::Status OpenNext() {
    Permit next = Good();
    next.id = {7, 13};
    open_ = {.id = next.id, .epoch = kEpoch, .prefill = kPrefill, .incarnation = kWriter};
    return gate_.Open(&open_, {Sign(next), kHost});
  }
  absl::Status Renew(const std::string& permit) {
    return gate_.GoOn(RenewRequest{kId, kEpoch, kPrefill}, {permit, kHost});
  }
  absl::Status Commit(const std::string& permit) {
    return gate_.GoOn(CommitRequest{.id = kId, .epoch = kEpoch, .prefill = kPrefill},
                      {permit, kHost});
  }
  absl::Status Abort(const std::string& permit) {
    abort_ = {.id = kId, .epoch = kEpoch, .prefill = kPrefill, .incarnation = kWriter};
    return gate_.Abort(&abort_, {permit, kHost});
  }
  uint64_t Refused(Refusal why) const { return gate_.Refused()[static_cast<size_t>(why)]; }
  void ExpectRefused(const absl::Status& status, Refusal why, const std::string& text) {
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    EXPECT_NE(status.message().find(text), std::string::npos) << status;
    EXPECT_EQ(Refused(why), 1u) << PermitGate::NameOf(why);
  }

  int64_t now_s_ = 1'000'000;
  int64_t ahead_s_ = 50'000;  // the orchestrator's clock
  PermitSigner signer_ = *PermitSigner::Make();
  PermitGate gate_;
  OpenTransferRequest open_;
  AbortRequest abort_;
};

TEST_F(PermitGateTest, ItsWriterOpensGoesOnAndCommits) {
  const std::string permit = Sign(Good());
  EXPECT_EQ(permit.size(), kPermitBytes);
  EXPECT_TRUE(Open(permit).ok());
  EXPECT_FALSE(open_.unpermitted);
  EXPECT_TRUE(Open(permit).ok()) << "its answer was lost";
  EXPECT_TRUE(Renew(permit).ok());
  EXPECT_TRUE(Commit(permit).ok());
  EXPECT_TRUE(Commit(permit).ok()) << "its answer was lost";
}

TEST_F(PermitGateTest, BytesSayWhatWasSigned) {
  const std::string bytes = Sign(Good());
  std::optional<Permit> read = ReadPermit(bytes);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->key, PermitKeyId(signer_.public_key()));
  Permit expected = Good();
  expected.key = read->key;
  expected.nonce = read->nonce;
  EXPECT_EQ(*read, expected);
  EXPECT_NE(bytes, Sign(Good())) << "each is another one";
}

// What of it the signature covers: everything.
TEST_F(PermitGateTest, OneOtherBitAnywhereIsRefused) {
  const std::string good = Sign(Good());
  for (size_t byte = 0; byte < good.size(); ++byte) {
    std::string forged = good;
    forged[byte] = static_cast<char>(forged[byte] ^ 1);
    EXPECT_FALSE(Open(forged).ok()) << "byte " << byte;
  }
  EXPECT_EQ(gate_.remembered(), 0u);
}

TEST_F(PermitGateTest, AnotherKeysSignatureIsForged) {
  const PermitSigner thief = *PermitSigner::Make();
  ExpectRefused(Open(*thief.Sign(Good())), Refusal::kForged, "not signed");
}

TEST_F(PermitGateTest, NoiseIsForged) {
  ExpectRefused(Open("let me in"), Refusal::kForged, "no permit");
}

TEST_F(PermitGateTest, OfAnotherRequest) {
  Permit permit = Good();
  permit.id = {7, 13};
  ExpectRefused(Open(Sign(permit)), Refusal::kOtherRequest, "not for 7/12, epoch 5");
}

TEST_F(PermitGateTest, OfAnotherEpoch) {
  Permit permit = Good();
  permit.epoch = {4};
  ExpectRefused(Open(Sign(permit)), Refusal::kOtherRequest, "epoch 4");
}

TEST_F(PermitGateTest, OfAnotherWriter) {
  Permit permit = Good();
  permit.writer = {105};
  ExpectRefused(Open(Sign(permit)), Refusal::kOtherWriter, "another writer");
}

TEST_F(PermitGateTest, ForAnotherDecodeWorker) {
  Permit permit = Good();
  permit.decode = {202};
  ExpectRefused(Open(Sign(permit)), Refusal::kOtherWorker, "another decode-worker");
}

TEST_F(PermitGateTest, Expired) {
  const std::string permit = Sign(Good());
  now_s_ += 901;
  EXPECT_TRUE(OpenNext().ok()) << "it tells the time";
  ExpectRefused(Open(permit), Refusal::kExpired, "expired");
}

// Each orchestrator has a clock of its own.
TEST_F(PermitGateTest, ClocksOfHostsNeedNotAgree) {
  EXPECT_TRUE(Open(Sign(Good())).ok());
  const PermitSigner next = *PermitSigner::Make();
  EXPECT_TRUE(gate_.TakeKey(kGeneration + 1, next.public_key()).ok());
  ahead_s_ = -900'000;
  Permit permit = Good();
  permit.epoch = {6};
  open_ = {.id = kId, .epoch = {6}, .prefill = kPrefill, .incarnation = kWriter};
  EXPECT_TRUE(gate_.Open(&open_, {*next.Sign(permit), kHost}).ok());
}

TEST_F(PermitGateTest, ReplayedFromAnotherHost) {
  const std::string permit = Sign(Good());
  EXPECT_TRUE(Open(permit).ok());
  ExpectRefused(Open(permit, "10.0.0.66"), Refusal::kReplayed, "another address");
  EXPECT_TRUE(Renew(permit).ok()) << "the writer goes on";
}

TEST_F(PermitGateTest, ReplayedFromAnotherHostToEndTheTransfer) {
  const std::string permit = Sign(Good());
  EXPECT_TRUE(Open(permit).ok());
  const CommitRequest commit{.id = kId, .epoch = kEpoch, .prefill = kPrefill};
  ExpectRefused(gate_.GoOn(commit, {permit, "10.0.0.66"}), Refusal::kReplayed, "another address");
  EXPECT_TRUE(Open(permit).ok()) << "it has not ended";
  EXPECT_TRUE(Commit(permit).ok());
}

// The worker registers anew at the same orchestrator.
TEST_F(PermitGateTest, ExpiredAlsoAfterAnotherWelcome) {
  const std::string permit = Sign(Good());
  now_s_ += 901;
  EXPECT_TRUE(OpenNext().ok());
  EXPECT_TRUE(gate_.TakeKey(kGeneration, signer_.public_key()).ok());
  ExpectRefused(Open(permit), Refusal::kExpired, "expired");
}

TEST_F(PermitGateTest, ReplayedAfterTheCommit) {
  const std::string permit = Sign(Good());
  EXPECT_TRUE(Open(permit).ok());
  EXPECT_TRUE(Commit(permit).ok());
  ExpectRefused(Open(permit), Refusal::kReplayed, "has ended");
}

TEST_F(PermitGateTest, ReplayedAfterTheAbort) {
  const std::string permit = Sign(Good());
  EXPECT_TRUE(Abort(permit).ok()) << "before it was opened";
  ExpectRefused(Open(permit), Refusal::kReplayed, "has ended");
}

// Ids of requests are in logs and headers.
TEST_F(PermitGateTest, TheIdAloneGivesNothing) {
  EXPECT_TRUE(Open(Sign(Good())).ok());
  ExpectRefused(Renew(""), Refusal::kMissing, "show it again");
  EXPECT_TRUE(absl::IsPermissionDenied(Commit("")));
  EXPECT_TRUE(absl::IsPermissionDenied(Abort("")));
  EXPECT_TRUE(absl::IsPermissionDenied(Commit(Sign(Good())))) << "not the one that opened it";
  EXPECT_TRUE(Open("").ok());
  EXPECT_TRUE(open_.unpermitted) << "the core refuses it";
}

TEST_F(PermitGateTest, AnAbortAheadWithoutAPermitIsLeftToTheCore) {
  EXPECT_TRUE(Abort("").ok());
  EXPECT_TRUE(abort_.unpermitted);
}

TEST_F(PermitGateTest, AWriterDoesNotTakeAnothersPlace) {
  EXPECT_TRUE(Open(Sign(Good())).ok());
  Permit other = Good();
  other.writer = {105};  // of the same plan, under the first one's name
  OpenTransferRequest request{
      .id = kId, .epoch = kEpoch, .prefill = kPrefill, .incarnation = {105}};
  ExpectRefused(gate_.Open(&request, {Sign(other), kHost}), Refusal::kReplayed, "another writer");
}

TEST_F(PermitGateTest, AFailoverLosesNoHandoff) {
  const std::string permit = Sign(Good());
  const PermitSigner next = *PermitSigner::Make();
  EXPECT_TRUE(gate_.TakeKey(kGeneration + 1, next.public_key()).ok());
  EXPECT_TRUE(Open(permit).ok()) << "the former orchestrator had granted it";
  EXPECT_TRUE(Renew(permit).ok());
  now_s_ += PermitGate::kFormerKeyS + 1;
  Permit late = Good();
  late.epoch = {6};
  open_ = {.id = kId, .epoch = {6}, .prefill = kPrefill, .incarnation = kWriter};
  ExpectRefused(gate_.Open(&open_, {Sign(late), kHost}), Refusal::kForged, "not signed");
}

// Its welcome is on its way, so the writer asks again.
TEST_F(PermitGateTest, OfANewerOrchestrator) {
  const PermitSigner next = *PermitSigner::Make();
  Permit permit = Good();
  permit.generation = kGeneration + 1;
  const std::string bytes = *next.Sign(permit);
  EXPECT_TRUE(absl::IsUnavailable(Open(bytes)));
  EXPECT_EQ(Refused(Refusal::kNewerKey), 1u);
  EXPECT_TRUE(gate_.TakeKey(kGeneration + 1, next.public_key()).ok());
  EXPECT_TRUE(Open(bytes).ok());
}

TEST_F(PermitGateTest, AnOlderOrchestratorSignsNone) {
  EXPECT_TRUE(gate_.TakeKey(kGeneration + 1, "").ok());
  EXPECT_TRUE(Open("").ok());
  EXPECT_FALSE(open_.unpermitted);
  EXPECT_TRUE(Renew("").ok());
  EXPECT_TRUE(Abort("").ok());
  EXPECT_FALSE(abort_.unpermitted);
}

TEST_F(PermitGateTest, AKeyOfAnotherSizeIsRefused) {
  const absl::Status status = gate_.TakeKey(kGeneration + 1, "short");
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_TRUE(Open(Sign(Good())).ok()) << "the former key stays";
}

TEST_F(PermitGateTest, ForgetsPermitsThatHaveExpired) {
  EXPECT_TRUE(Open(Sign(Good())).ok());
  now_s_ += 901;
  EXPECT_TRUE(OpenNext().ok());
  EXPECT_EQ(gate_.remembered(), 1u);
}

TEST(HostOfPeer, LeavesThePortAway) {
  EXPECT_EQ(HostOfPeer("ipv4:10.0.0.4:4242"), "10.0.0.4");
  EXPECT_EQ(HostOfPeer("ipv6:%5Bfd00::4%5D:4242"), "fd00::4");
  EXPECT_EQ(HostOfPeer("ipv6:[fd00::4]:4242"), "fd00::4");
  EXPECT_EQ(HostOfPeer("ipv6:%5B::ffff:10.0.0.4%5D:4242"), "10.0.0.4");
  EXPECT_EQ(HostOfPeer("ipv4:127.0.0.1:4242"), "local");
  EXPECT_EQ(HostOfPeer("ipv6:%5B::1%5D:4242"), "local");
  EXPECT_EQ(HostOfPeer("unix:/run/skein.sock"), "local");
}

}  // namespace
}  // namespace skein::services
