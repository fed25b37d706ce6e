#include "services/skeinctl/planning/fit.h"

#include <fstream>

#include "gtest/gtest.h"
#include "services/codec/profile_json.h"
#include "services/skeinctl/command.h"

namespace skein::services {
namespace {

// Runs the command on a file with this text; returns its standard output.
std::string FitFile(const std::string& csv, int expected_exit) {
  const std::string path = ::testing::TempDir() + "/samples.csv";
  std::ofstream(path) << csv;
  const char* argv[] = {"fit", path.c_str(), "--device=x", nullptr};
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(MakeCommand("fit", RunFit).run(3, argv), expected_exit);
  return ::testing::internal::GetCapturedStdout();
}

TEST(Fit, WritesAProfileThatLoads) {
  const std::string json = FitFile(
      "sp,history_tokens,chunk_tokens,seconds\n"
      "1,0,10,1.1\n1,0,100,2\n1,0,1000,11\n1,0,2000,21\n",
      0);
  const auto profile = ParseProfile(json);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->device, "x");
  EXPECT_NEAR(profile->latency->Seconds(1, 0, 500), 6, 1e-6);
}

TEST(Fit, RefusedSamplesExitWith2AndNoProfile) {
  EXPECT_EQ(FitFile("sp,chunk_tokens,seconds\n1,10,nan\n", 2), "");
  EXPECT_EQ(FitFile("sp,chunk_tokens,seconds\n1,10,1\n1,20,2\n", 2), "");
  EXPECT_EQ(FitFile("sp,chunk_tokens,seconds\n1,10,5\n1,100,4\n1,1000,3\n", 2), "");
}

TEST(Fit, AWrongCellIsNamedWithWhatItShouldBe) {
  ::testing::internal::CaptureStderr();
  FitFile("sp,chunk_tokens,seconds\nabc,10,1\n", 2);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "skeinctl fit: error: samples: line 2: sp: 'abc' is not a whole number\n");
  ::testing::internal::CaptureStderr();
  FitFile("sp,chunk_tokens,seconds\n1,10,x\n", 2);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "skeinctl fit: error: samples: line 2: seconds: 'x' is not a number of seconds\n");
}

TEST(Fit, PrintsEveryResidual) {
  scheduler::LatencyFit fit;
  fit.residuals = {{{2, 0, 100, 2.0}, 2.1}, {{2, 50, 100, 4.0}, 3.8}};
  const std::string table = ResidualTable(fit);
  EXPECT_EQ(ResidualJsonLines(fit).find(R"({"sp": 2, "history_tokens": 0, )"), 0u);
  EXPECT_NE(table.find("+5.00%"), std::string::npos) << table;
  EXPECT_NE(table.find("-5.00%"), std::string::npos) << table;
  EXPECT_NE(table.find("sp 2: 2 samples, mean error 5.00%, largest 5.00%"), std::string::npos);
}

}  // namespace
}  // namespace skein::services
