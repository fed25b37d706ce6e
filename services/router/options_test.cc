#include "services/router/options.h"

#include <gtest/gtest.h>

#include <vector>

namespace skein::services {
namespace {

absl::Status Parse(std::vector<const char*> arguments) {
  RouterOptions options;
  FlagSet flags;
  options.Register(&flags);
  arguments.insert(arguments.begin(), "router");
  return flags.Parse(static_cast<int>(arguments.size()), arguments.data(), {});
}

TEST(RouterOptions, TheBodiesOfAllRequestsHaveRoomForTwoOfTheLongest) {
  EXPECT_EQ(Parse({"--model=m", "--max-held-bytes=1000"}).message(),
            "--max-held-bytes: 1000 is less than twice --max-body-bytes (8388608); raise it or "
            "use 0");
  EXPECT_TRUE(Parse({"--model=m", "--max-held-bytes=2048", "--max-body-bytes=1024"}).ok());
  EXPECT_TRUE(Parse({"--model=m", "--max-held-bytes=0"}).ok());
}

TEST(RouterOptions, OneOrchestratorOrSeveral) {
  RouterOptions options;
  EXPECT_EQ(options.orchestrators(), (std::vector<std::string>{"127.0.0.1:7100"}));
  options.orchestrator = "a:1,b:2";
  EXPECT_EQ(options.orchestrators(), (std::vector<std::string>{"a:1", "b:2"}));
  options.orchestrator = "a:1+a:2,b:2";
  EXPECT_EQ(options.orchestrators(), (std::vector<std::string>{"a:1+a:2", "b:2"}));
  EXPECT_TRUE(Parse({"--model=m", "--orchestrator=a:1,b:2"}).ok());
  EXPECT_EQ(Parse({"--model=m", "--orchestrator=a:1,"}).message(),
            "--orchestrator: an address is empty; use HOST:PORT");
  EXPECT_EQ(Parse({"--model=m", "--orchestrator=a:1,b:2,a:1"}).message(),
            "--orchestrator: a:1 is there twice; name each once");
}

}  // namespace
}  // namespace skein::services
