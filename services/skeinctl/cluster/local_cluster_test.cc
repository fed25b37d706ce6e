#include "services/skeinctl/cluster/local_cluster.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"
#include "services/skeinctl/cluster/cluster_client.h"

namespace skein::services {
namespace {

TEST(LocalCluster, ThePathFollowsTheEnvironment) {
  Environment environment = {{"HOME", "/home/u"}};
  EXPECT_EQ(LocalClusterPath(environment), "/home/u/.local/state/skein/local.json");
  environment["XDG_STATE_HOME"] = "/state";
  EXPECT_EQ(LocalClusterPath(environment), "/state/skein/local.json");
  environment["SKEIN_RUN_DIR"] = "/run/one";
  EXPECT_EQ(LocalClusterPath(environment), "/run/one/local.json");
}

TEST(LocalCluster, AFileIsReadOrItsFieldNamed) {
  const auto cluster = ParseLocalCluster(R"({"orchestrator": "127.0.0.1:7", "url": "http://r",
      "processes": [{"name": "prefill-0", "role": "prefill", "pid": 12, "log": "/l"}]})");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->orchestrator, "127.0.0.1:7");
  EXPECT_EQ(cluster->processes.at(0).pid, 12);
  EXPECT_EQ(cluster->processes.at(0).log, "/l");
  EXPECT_EQ(ParseLocalCluster("{}").status().message(), "orchestrator: missing or not a string");
  EXPECT_EQ(ParseLocalCluster(R"({"orchestrator": "a", "processes": [3]})").status().message(),
            "processes: an entry has no pid");
  EXPECT_FALSE(ParseLocalCluster("[").ok());
}

class FindOrchestratorTest : public ::testing::Test {
 protected:
  FindOrchestratorTest() {
    std::filesystem::create_directories(folder_);
    environment_["SKEIN_RUN_DIR"] = folder_;
  }
  void Write(int64_t pid) {
    std::ofstream(folder_ + "/local.json")
        << R"({"orchestrator": "127.0.0.1:7", "processes": [{"role": "orchestrator", "pid": )"
        << pid << "}]}";
  }
  std::string folder_ = ::testing::TempDir() + "/find_" +
                        ::testing::UnitTest::GetInstance()->current_test_info()->name();
  Environment environment_;
};

TEST_F(FindOrchestratorTest, AFlagWins) {
  EXPECT_EQ(*FindOrchestrator("h:1", environment_), "h:1");
}

TEST_F(FindOrchestratorTest, TheRunningClusterOfUpIsFound) {
  Write(getpid());
  EXPECT_EQ(*FindOrchestrator("", environment_), "127.0.0.1:7");
}

TEST_F(FindOrchestratorTest, WithoutOneTheErrorSaysWhatToGive) {
  const absl::Status none = FindOrchestrator("", environment_).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
  for (const char* part : {"--orchestrator HOST:PORT", "SKEIN_ORCHESTRATOR", "deploy/local/up"}) {
    EXPECT_NE(none.message().find(part), absl::string_view::npos) << none;
  }
}

TEST_F(FindOrchestratorTest, AClusterThatHasEndedIsNotTakenForOne) {
  Write(int64_t{1} << 30);  // no process has this id
  const absl::Status ended = FindOrchestrator("", environment_).status();
  EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable) << "known, but stopped";
  EXPECT_NE(ended.message().find("is not running"), absl::string_view::npos) << ended;
}

}  // namespace
}  // namespace skein::services
