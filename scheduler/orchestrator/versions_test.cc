// Processes of other versions: by protocol and KV digest they are taken, or refused by name.
#include "scheduler/kv/kv_digest.h"
#include "scheduler/orchestrator/testing/plain_testing.h"

namespace skein::scheduler {
namespace {

class VersionsTest : public OrchestratorCoreTest {
 protected:
  VersionsTest() {
    core_ = std::make_unique<OrchestratorCore>(
        OrchestratorConfig{.generation = kGeneration, .build = {"0.6.0", {2, 3}}});
  }
  static WorkerIdentity Worker(Role role, uint64_t incarnation, PeerBuild build,
                               uint64_t kv_digest = 0) {
    return {.role = role,
            .model = "m",
            .endpoint = "w:" + std::to_string(incarnation),
            .incarnation = {incarnation},
            .shape = kShape,
            .total_blocks = 10,
            .details = "",
            .max_batch_tokens = 8,
            .build = std::move(build),
            .kv_digest = kv_digest};
  }
  RegisterReply Come(const WorkerIdentity& identity) {
    return Of<AnswerRegister>(Do(RegisterCalled{Call(), {identity}}))[0].reply;
  }
  RouterWelcome ComeRouter(PeerBuild build) {
    RouterHello hello;
    hello.identity = {
        .router = 70, .endpoint = "r:80", .host = "h", .details = "", .build = std::move(build)};
    return Of<WelcomeRouter>(Do(RouterConnected{Call(), hello}))[0].welcome;
  }
  std::vector<RefusedPeer> Refused() { return core_->Snapshot(now_).refused_peers; }

  const PeerBuild fits_{"0.5.0", {1, 2}};
};

TEST_F(VersionsTest, AWorkerWithoutACommonRevisionIsRefusedByNameAndShown) {
  const RegisterReply reply = Come(Worker(Role::kPrefill, 1, {"0.4.0", {0, 1}}));
  const std::string why =
      "protocol: the prefill-worker (0.4.0) speaks revisions 0 to 1, the orchestrator (0.6.0) 2 to "
      "3; upgrade the prefill-worker (docs/compatibility.md)";
  EXPECT_EQ(reply.status, absl::FailedPreconditionError(why));
  EXPECT_TRUE(core_->Snapshot(now_).instances.empty());
  ASSERT_EQ(Refused().size(), 1u);
  EXPECT_EQ(Refused()[0].what, "prefill-worker");
  EXPECT_EQ(Refused()[0].endpoint, "w:1");
  EXPECT_EQ(Refused()[0].version, "0.4.0");
  EXPECT_EQ(Refused()[0].why, why);
  // Upgraded, it is taken.
  EXPECT_TRUE(Come(Worker(Role::kPrefill, 1, fits_)).status.ok());
  EXPECT_TRUE(Refused().empty());
}

TEST_F(VersionsTest, ARouterWithoutACommonRevisionIsRefusedByName) {
  EXPECT_EQ(ComeRouter({"0.8.0", {4, 5}}).status,
            absl::FailedPreconditionError(
                "protocol: the router (0.8.0) speaks revisions 4 to 5, the orchestrator (0.6.0) 2 "
                "to 3; upgrade the orchestrator (docs/compatibility.md)"));
  ASSERT_EQ(Refused().size(), 1u);
  EXPECT_EQ(Refused()[0].what, "router");
  const RouterWelcome welcome = ComeRouter(fits_);
  EXPECT_TRUE(welcome.status.ok());
  EXPECT_EQ(welcome.build, (PeerBuild{"0.6.0", {2, 3}}));
  EXPECT_TRUE(Refused().empty());
}

TEST_F(VersionsTest, ARefusedHelloTellsNoGeneration) {
  RouterHello hello;
  hello.identity = {.router = 70, .endpoint = "r:80", .host = "h", .details = ""};
  hello.seen = {kGeneration + 5, {9}};
  Do(RouterConnected{Call(), hello});
  EXPECT_EQ(core_->Snapshot(now_).generation, kGeneration);
}

TEST_F(VersionsTest, TheWelcomeNamesTheOrchestratorsBuild) {
  EXPECT_EQ(Come(Worker(Role::kDecode, 2, fits_)).build, (PeerBuild{"0.6.0", {2, 3}}));
}

TEST_F(VersionsTest, WorkersOfOneModelHaveOneKvDigest) {
  ASSERT_TRUE(Come(Worker(Role::kPrefill, 1, fits_, 0xabc)).status.ok());
  EXPECT_EQ(Come(Worker(Role::kDecode, 2, fits_, 0xdef)).status,
            absl::FailedPreconditionError("model m: kv_digest: this worker def, its instances abc: "
                                          "their builds do not lay out or compute KV alike"));
  ASSERT_EQ(Refused().size(), 1u);
  EXPECT_EQ(Refused()[0].what, "decode-worker");
  EXPECT_TRUE(Come(Worker(Role::kDecode, 3, fits_, 0xabc)).status.ok());
}

// A worker of 0.3.0 tells no digest: it has that of its shape.
TEST_F(VersionsTest, ADigestThatIsNotToldFollowsFromTheShape) {
  ASSERT_TRUE(Come(Worker(Role::kPrefill, 1, fits_)).status.ok());
  EXPECT_TRUE(Come(Worker(Role::kDecode, 2, fits_, KvDigest(kShape))).status.ok());
  EXPECT_FALSE(Come(Worker(Role::kDecode, 3, fits_, KvDigest(kShape) + 1)).status.ok());
  EXPECT_TRUE(Come(Worker(Role::kPrefill, 4, fits_)).status.ok());
}

TEST_F(VersionsTest, APeerThatTriesNoMoreIsForgotten) {
  Come(Worker(Role::kPrefill, 1, {}));
  EXPECT_EQ(Refused().size(), 1u);
  now_ += 31 * kSecondUs;
  EXPECT_TRUE(Refused().empty());
}

}  // namespace
}  // namespace skein::scheduler
