#include "services/worker/process/worker_options.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace skein::services {
namespace {

absl::Status Start(std::vector<const char*> arguments,
                   const std::map<std::string, std::string>& environment,
                   void (WorkerOptions::*role)(FlagSet*)) {
  WorkerOptions options;
  FlagSet flags;
  (options.*role)(&flags);
  arguments.insert(arguments.begin(), {"worker", "--model=m"});
  return flags.Parse(static_cast<int>(arguments.size()), arguments.data(), environment);
}

class WorkerOptionsTest : public ::testing::TestWithParam<void (WorkerOptions::*)(FlagSet*)> {
 protected:
  static absl::Status Start(const std::vector<const char*>& arguments,
                            const std::map<std::string, std::string>& environment = {}) {
    return services::Start(arguments, environment, GetParam());
  }
};

TEST_P(WorkerOptionsTest, AHostThatOthersCannotConnectToNeedsAnAddressToAdvertise) {
  for (const char* host :
       {"--host=0.0.0.0", "--host=::", "--host=[::]", "--host=0:0:0:0:0:0:0:0", "--host="}) {
    const absl::Status status = Start({host});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << host;
    EXPECT_TRUE(absl::StrContains(status.message(), "--host: '")) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "--advertise")) << status;
    EXPECT_TRUE(Start({host, "--advertise=10.0.0.2"}).ok()) << host;
    EXPECT_TRUE(Start({host}, {{"SKEIN_ADVERTISE", "worker-3.workers"}}).ok()) << host;
  }
}

TEST_P(WorkerOptionsTest, AWildcardIsNoAddressToAdvertise) {
  const absl::Status status = Start({"--advertise=0.0.0.0"});
  EXPECT_TRUE(absl::StrContains(status.message(), "--advertise: '0.0.0.0'")) << status;
}

TEST_P(WorkerOptionsTest, AnAddressOfTheMachineNeedsNothingElse) {
  EXPECT_TRUE(Start({}).ok());
  EXPECT_TRUE(Start({"--host=10.0.0.2"}).ok());
  EXPECT_TRUE(Start({"--host=::1"}).ok());
  EXPECT_TRUE(Start({"--host=node-7"}).ok());
}

TEST_P(WorkerOptionsTest, WhereEncryptionIsRequiredPlainGrpcStaysOnTheHost) {
  EXPECT_TRUE(Start({"--require-encryption"}).ok());
  EXPECT_TRUE(Start({"--require-encryption", "--orchestrator=localhost:7100+127.0.0.2:7100"}).ok());
  for (const auto& [argument, named] :
       {std::pair("--host=10.0.0.2", "at '10.0.0.2'"),
        std::pair("--orchestrator=localhost:7100+10.0.0.1:7100", "give --orchestrator")}) {
    const absl::Status status = Start({"--require-encryption", argument});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "--require-encryption: gRPC")) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), named)) << status;
  }
}

TEST_P(WorkerOptionsTest, WhereEncryptionIsRequiredSpansStayOnTheHost) {
  for (const char* endpoint :
       {"local", "http://127.0.0.1:4318", "http://localhost", "http://[::1]"}) {
    const std::string flag = absl::StrCat("--trace-endpoint=", endpoint);
    EXPECT_TRUE(Start({"--require-encryption", flag.c_str()}).ok()) << endpoint;
  }
  for (const char* endpoint :
       {"http://10.0.0.9:4318", "http://collector.observability/otlp", "http://127.example.org"}) {
    const std::string flag = absl::StrCat("--trace-endpoint=", endpoint);
    const absl::Status status = Start({"--require-encryption", flag.c_str()});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "--require-encryption: spans")) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), endpoint)) << status;
    EXPECT_TRUE(Start({flag.c_str()}).ok()) << endpoint;
  }
}

TEST_P(WorkerOptionsTest, AGpuIsNotReproducible) {
  const absl::Status status = Start({"--reproducible=on", "--device=cuda:1"});
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "--reproducible: --device 'cuda:1'")) << status;
  EXPECT_TRUE(Start({"--reproducible=on", "--device=cpu"}).ok());
  EXPECT_TRUE(Start({"--device=cuda:1"}).ok());
  EXPECT_TRUE(Start({"--reproducible=off", "--device=cuda:1"}).ok());
  EXPECT_TRUE(Start({"--reproducible=auto", "--device=cuda:1"}).ok());
}

TEST_P(WorkerOptionsTest, OnlyACpuHasABudgetOfMemory) {
  for (const char* device : {"--device=cuda:1", "--device=emulated"}) {
    const absl::Status status = Start({"--device-memory-gib=2", device});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "--device-memory-gib: --device '")) << status;
    EXPECT_TRUE(Start({"--device-memory-gib=0", device}).ok()) << device;
  }
  EXPECT_TRUE(Start({"--device-memory-gib=2", "--device=cpu"}).ok());
}

TEST(DecodeOptionsTest, TheShareOfOwnStepsInAFormationIsAShare) {
  const auto start = [](const char* argument) {
    return Start({argument}, {}, &WorkerOptions::RegisterDecode);
  };
  for (const char* value : {"-0.1", "1.5", "nan", "half"}) {
    const absl::Status status = start(absl::StrCat("--formation-own-share=", value).c_str());
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << value;
    EXPECT_TRUE(
        absl::StrContains(status.message(), absl::StrCat("--formation-own-share: '", value, "'")))
        << status;
  }
  for (const char* value : {"0", "0.25", "1"}) {
    EXPECT_TRUE(start(absl::StrCat("--formation-own-share=", value).c_str()).ok()) << value;
  }
  EXPECT_EQ(WorkerOptions().formation_own_share, 0) << "by the tokens that wait";
  EXPECT_FALSE(Start({"--formation-own-share=0.5"}, {}, &WorkerOptions::RegisterPrefill).ok());
}

INSTANTIATE_TEST_SUITE_P(Roles, WorkerOptionsTest,
                         ::testing::Values(&WorkerOptions::RegisterPrefill,
                                           &WorkerOptions::RegisterDecode));

}  // namespace
}  // namespace skein::services
