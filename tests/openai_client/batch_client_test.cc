// batch_client.cjs, OpenAI's client for JavaScript, against a router whose orchestrator keeps files
// and jobs in memory and computes none.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "services/router/testing/fake_jobs.h"
#include "services/router/testing/router_fixture.h"

namespace skein::services::testing {
namespace {

class BatchClientTest : public RouterTest {
 protected:
  FakeJobs jobs_service_;
};

TEST_F(BatchClientTest, OpenAisClientUsesFilesAndBatches) {
  ASSERT_NE(std::getenv("SKEIN_NPM"), nullptr);
  services_.push_back(&jobs_service_);
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  const std::string command = "node tests/openai_client/batch_client.cjs http://127.0.0.1:" +
                              std::to_string(server_->port()) + "/v1 m";
  const int status = std::system(command.c_str());
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace skein::services::testing
