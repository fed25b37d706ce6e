#include "services/codec/step_profile_json.h"

#include <string>

#include "gtest/gtest.h"
#include "scheduler/simulator/formations/builtin_step_profiles.h"

namespace skein::services {
namespace {

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(StepProfileJson, ComesBackUnchanged) {
  for (const scheduler::StepProfile& profile : scheduler::BuiltinStepProfiles()) {
    const std::string json = StepProfileJson(profile);
    const auto parsed = ParseStepProfile(json);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(StepProfileJson(*parsed), json);
    EXPECT_EQ(parsed->fitted.step_s, profile.fitted.step_s);
    EXPECT_EQ(parsed->KvTokens(1, 1), profile.KvTokens(1, 1));
  }
}

TEST(StepProfileJson, ErrorsNameTheField) {
  const std::string good = StepProfileJson(scheduler::BuiltinStepProfiles().front());
  const auto why = [](const std::string& json) {
    return std::string(ParseStepProfile(json).status().message());
  };
  EXPECT_EQ(why("{"), "not valid JSON");
  EXPECT_EQ(why("[]"), "the profile is not an object");
  EXPECT_NE(why(Replaced(good, "\"layers\"", "\"layer\"")).find("layers"), std::string::npos);
  EXPECT_NE(why(Replaced(good, "\"shape\"", "\"shapes\"")).find("shape"), std::string::npos);
  EXPECT_NE(why(Replaced(good, "\"step_s\": ", "\"more\": 1, \"step_s\": ")).find("more"),
            std::string::npos);
  EXPECT_NE(why(Replaced(good, "\"base_devices\": 2", "\"base_devices\": 1")).find("do not fit"),
            std::string::npos);
}

// How many devices an instance stands for.
TEST(StepProfileJson, BaseDevicesIsAWholeNumberThatStands) {
  const scheduler::StepProfile& two = *scheduler::FindStepProfile("llama3-70b-h200-bf16");
  ASSERT_EQ(two.base_devices, 2);
  const std::string json = StepProfileJson(two);
  EXPECT_EQ(ParseStepProfile(json)->base_devices, 2);
  const auto with = [&](const std::string& value) {
    return ParseStepProfile(Replaced(json, "\"base_devices\": 2", "\"base_devices\": " + value));
  };
  const auto four = with("4");
  ASSERT_TRUE(four.ok()) << four.status();
  EXPECT_GT(four->KvTokens(1, 1), 3 * two.KvTokens(1, 1)) << "one copy of the weights on four";
  EXPECT_EQ(with("0").status().message(), "base_devices: 0 is not in 1 to 2^24");
  EXPECT_EQ(with("2.5").status().message(), "the profile has no whole number: base_devices");
  EXPECT_EQ(ParseStepProfile(Replaced(json, "  \"base_devices\": 2,\n", "")).status().message(),
            "the profile has no whole number: base_devices");
}

TEST(StepProfileJson, LoadsByNameOrPath) {
  EXPECT_EQ(LoadStepProfile("llama3-8b")->name, "llama3-8b");
  const absl::Status missing = LoadStepProfile("/nonexistent").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("llama3-70b-h200-fp8"), absl::string_view::npos);
}

}  // namespace
}  // namespace skein::services
