#include "scheduler/base/peer_build.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

TEST(PeerBuildTest, ThisBuildSpeaksWithThePromisedOnes) {
  const PeerBuild own{"own", kProtocol};
  const PeerBuild first{"0.2.0", {}};  // as builds of 0.3.0 call themselves
  EXPECT_TRUE(CheckProtocol(first, "router", own, "orchestrator").ok());
  EXPECT_EQ(CommonRevision(first.protocol, kProtocol), 0u);
  EXPECT_TRUE(CheckProtocol(own, "router", own, "orchestrator").ok());
  EXPECT_EQ(CommonRevision(kProtocol, kProtocol), kProtocol.newest);
}

TEST(PeerBuildTest, RangesThatMeetInOneRevisionAreEnough) {
  const PeerBuild older{"a", {0, 2}};
  const PeerBuild newer{"b", {2, 5}};
  EXPECT_TRUE(CheckProtocol(older, "router", newer, "orchestrator").ok());
  EXPECT_TRUE(CheckProtocol(newer, "router", older, "orchestrator").ok());
  EXPECT_EQ(CommonRevision(older.protocol, newer.protocol), 2u);
  EXPECT_EQ(CommonRevision(newer.protocol, older.protocol), 2u);
}

TEST(PeerBuildTest, ARefusalNamesBothSidesAndWhichOneToUpgrade) {
  const PeerBuild older{"0.4.0", {0, 1}};
  const PeerBuild newer{"0.6.0", {2, 3}};
  EXPECT_EQ(CheckProtocol(newer, "router", older, "orchestrator"),
            absl::FailedPreconditionError(
                "protocol: the router (0.6.0) speaks revisions 2 to 3, the orchestrator (0.4.0) 0 "
                "to 1; upgrade the orchestrator (docs/compatibility.md)"));
  EXPECT_EQ(CheckProtocol({}, "prefill-worker", newer, "orchestrator"),
            absl::FailedPreconditionError(
                "protocol: the prefill-worker (a version that it does not tell) speaks revisions 0 "
                "to 0, the orchestrator (0.6.0) 2 to 3; upgrade the prefill-worker "
                "(docs/compatibility.md)"));
}

}  // namespace
}  // namespace skein::scheduler
