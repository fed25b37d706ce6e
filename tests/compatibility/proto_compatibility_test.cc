// proto/ keeps what it promised to the versions that may run beside this one (released/).
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "tests/compatibility/proto_listing.h"

namespace skein::compatibility {
namespace {

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << "cannot read " << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(ProtoCompatibilityTest, PeersOfReleasedVersionsUnderstandThisOne) {
  const std::string now = ProtoListing(FilesOfSkein());
  for (const char* version : {"0.3.0"}) {
    const std::string released =
        TextOf(absl::StrCat("tests/compatibility/released/", version, ".proto.txt"));
    ASSERT_NE(released.find("\nfield skein.v1.RequestId 1 router fixed64 singular\n"),
              std::string::npos);
    EXPECT_EQ(absl::StrJoin(BrokenBy(now, released), "\n"), "")
        << "peers of " << version << " would misread this; see docs/compatibility.md";
  }
}

TEST(ProtoCompatibilityTest, TheListingHasEveryKindOfElement) {
  const std::string now = "\n" + ProtoListing(FilesOfSkein());
  for (const char* line :
       {"message skein.v1.ListGroupsRequest", "enum skein.v1.Role", "service skein.v1.Orchestrator",
        "value skein.v1.Role 2 ROLE_DECODE", "reserved skein.v1.RequestSpec 3",
        "field skein.v1.HeldRequest 4 chunk_running_us uint64 optional",
        "field skein.v1.PlanUpdate 3 placed skein.v1.PlanUpdate.Placed singular oneof:update",
        "field skein.v1.GroupStatus.Formation 1 members uint64 repeated",
        "rpc skein.v1.DecodeWorker Commit skein.v1.CommitRequest skein.v1.CommitResponse",
        ("rpc skein.v1.Orchestrator ConnectWorker stream:skein.v1.WorkerMessages "
         "stream:skein.v1.OrchestratorMessages"),
        ("rpc skein.v1.PrefillWorker StepTimes skein.v1.StepTimesRequest "
         "skein.v1.StepTimesResponse")}) {
    EXPECT_NE(now.find("\n" + std::string(line) + "\n"), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace skein::compatibility
