#include "services/codec/profile_json.h"

#include <fstream>

#include "gtest/gtest.h"
#include "scheduler/plan/latency/builtin_models.h"

namespace skein::services {
namespace {

std::string With(const std::string& member) { return "{" + member + "}"; }

constexpr char kOne[] = R"({"a_s": 0.1, "b_s_per_token": 1e-5, "c_s_per_token2": 2e-9,
                            "d_s_per_token2": 1e-9})";

std::string Why(const std::string& json) {
  return std::string(ParseProfile(json).status().message());
}

TEST(Profile, SurvivesItsJson) {
  Profile profile{"m", "d", "2026-11-21", scheduler::Llama3_8bA100(), {}, {}};
  profile.improvement_rates = *scheduler::ImprovementRateTable::Make({{0.5, 0.05}, {1, 0.7}});
  const auto parsed = ParseProfile(ProfileJson(profile));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->device, "d");
  EXPECT_EQ(parsed->latency->sp_sizes(), profile.latency->sp_sizes());
  EXPECT_EQ(parsed->latency->Seconds(8, 777, 12345), profile.latency->Seconds(8, 777, 12345));
  EXPECT_EQ(parsed->improvement_rates->RateAt(1), 0.7);
  EXPECT_EQ(ProfileJson(*parsed), ProfileJson(profile));
}

// Instances of several devices, and the decode instances that the simulator assumes with them.
TEST(Profile, KeepsItsDevicesAndDecodeInstances) {
  const auto profile = LoadProfile("llama3-70b-a100-tp4");
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->base_devices, 4);
  EXPECT_EQ(profile->decode->prefill_instances, 1);
  const auto parsed = ParseProfile(ProfileJson(*profile));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->base_devices, 4);
  EXPECT_EQ(parsed->decode->blocks, 28'000);
  EXPECT_EQ(parsed->decode->step_weights_s, profile->decode->step_weights_s);
  EXPECT_EQ(ProfileJson(*parsed), ProfileJson(*profile));
  EXPECT_EQ(LoadProfile("llama3-8b-a100")->base_devices, 1);

  const std::string sp = std::string("\"sp\": {\"1\": ") + kOne + "}, ";
  EXPECT_EQ(Why(With(sp + R"("base_devices": 0)")),
            "profile.base_devices is 0, not a whole number between 1 and 1024");
  EXPECT_EQ(Why(With(sp + R"("base_devices": 1.5)")),
            "profile.base_devices is 1.5, not a whole number between 1 and 1024");
  EXPECT_EQ(Why(With(sp + R"("decode": 3)")), "decode is 3, not an object");
  EXPECT_EQ(Why(With(sp + R"("decode": {"step_base_s": 1})")),
            "decode.step_per_sequence_s is missing");
  EXPECT_EQ(Why(With(sp + R"("decode": {"step_base_s": 0, "step_per_sequence_s": 0,
      "step_per_kv_token_s": 0, "step_weights_s": 0, "blocks": 1, "block_tokens": 1,
      "prefill_instances": 1})")),
            "decode: decode step base: must be positive");
}

TEST(Profile, KeepsWhatRollingIsTunedTo) {
  using Kind = scheduler::CommitMode::Kind;
  Profile profile{"", "", "", scheduler::Llama3_8bA100(), {}, {}};
  scheduler::RollingTuning tuning{.price = 0.3, .slack = 3, .waiting_weight = 16, .calm_s = 1.25};
  std::vector<scheduler::RollingSetting> rows = {{1, tuning}};
  for (const auto& commit :
       {scheduler::CommitMode{Kind::kTetris, 0.25, 0}, scheduler::CommitMode{Kind::kSingle, 0, 0},
        scheduler::CommitMode{Kind::kFixed, 0, 16}}) {
    tuning.commit = commit;
    rows.push_back({static_cast<double>(rows.size()) + 1, tuning});
  }
  profile.rolling = *scheduler::RollingTable::Make(rows);
  const auto parsed = ParseProfile(ProfileJson(profile));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->rolling->rows().size(), rows.size());
  for (const auto& row : rows) EXPECT_EQ(parsed->rolling->At(row.requests_per_s), row.tuning);
}

TEST(Profile, IsRefusedWithTheFieldAndTheValue) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "not valid JSON"},
      {"{\"sp\": {\"1\": NaN}}", "not valid JSON"},
      {"[]", "[], not an object"},
      {"{}", "sp is missing"},
      {With(R"("sp": {})"), "no SP size"},
      {With(R"("sp": 3)"), "sp is 3"},
      {With(std::string(R"("sp": {"3": )") + kOne + "}"), "sp 3: is not a power of two"},
      {With(std::string(R"("sp": {"x": )") + kOne + "}"), "'x'"},
      {With(std::string(R"("sp": {"1": )") + kOne + R"(, "01": )" + kOne + "}"), "twice"},
      {With(R"("sp": {"1": {"a_s": 1}})"), "sp.1.b_s_per_token is missing"},
      {With(R"("sp": {"1": {"a_s": "1"}})"), "sp.1.a_s is \"1\""},
      {With(R"("sp": {"1": {"a_s": 0, "b_s_per_token": -1, "c_s_per_token2": 0,
                "d_s_per_token2": 0}})"),
       "b_s_per_token is -1"},
      {With(R"("model": 5)"), "model is 5"},
      {With(R"("speed": 5)"), "'speed'"},
      {With(R"("improvement_rates": [{"requests_per_s": 1}])"),
       "improvement_rates[0].improvement_rate is missing"},
      {With(R"("improvement_rates": [{"requests_per_s": 1, "improvement_rate": 2}])"),
       "improvement_rate is 2"},
  };
  const auto rolling = [](const std::string& more) {
    return With(R"("rolling": [{"requests_per_s": 1, "price": 0.1, "slack": 2, "stretch": 1,
                                "waiting_weight": 4, "calm_s": 0)" +
                more + "}]");
  };
  EXPECT_EQ(Why(rolling("")), "sp is missing");
  EXPECT_NE(Why(rolling(R"(, "commit": "greedy2")")).find("\"greedy2\", not tetris"),
            std::string::npos);
  EXPECT_NE(Why(rolling(R"(, "commit": "tetris")")).find("improvement_rate is missing"),
            std::string::npos);
  EXPECT_NE(Why(rolling(R"(, "improvement_rate": 0.1)")).find("requires 'commit'"),
            std::string::npos);
  EXPECT_NE(Why(With(R"("rolling": [{"requests_per_s": 1}])")).find("rolling[0].price is missing"),
            std::string::npos);
  for (const auto& [json, expected] : cases) {
    EXPECT_NE(Why(json).find(expected), std::string::npos) << json << ": " << Why(json);
  }
}

TEST(Profile, HasTheShapesOfTensorGroups) {
  const std::string sizes = R"({"sp": {"1": {"a_s": 0, "b_s_per_token": 1e-4, "c_s_per_token2": 0,
      "d_s_per_token2": 0}, "4": {"a_s": 0.5, "b_s_per_token": 1e-5, "c_s_per_token2": 0,
      "d_s_per_token2": 0}})";
  const auto with = [](const std::string& rows) { return ", \"tensor\": " + rows + "}"; };
  const std::string rest = R"("b_s_per_token": 2e-5, "c_s_per_token2": 3, "d_s_per_token2": 4})";
  const std::string four = R"({"instances": 4, "tp": 4, "a_s": 0.1, )" + rest;
  const std::string two = R"({"instances": 4, "tp": 2, "a_s": 0.2, )" + rest;
  const auto profile = ParseProfile(sizes + with("[" + four + ", " + two + "]"));
  ASSERT_TRUE(profile.ok()) << profile.status();
  const std::string text = ProfileJson(*profile);
  const auto again = ParseProfile(text);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(ProfileJson(*again), text);
  for (const Profile& one : {*profile, *again}) {
    const auto& shapes = one.latency->TensorAt(one.latency->IndexOf(4));
    ASSERT_EQ(shapes.size(), 2u);
    EXPECT_EQ(shapes[0].tp, 2);
    EXPECT_EQ(shapes[0].coefficients.a_s, 0.2);
    EXPECT_EQ(shapes[1].tp, 4);
    EXPECT_EQ(shapes[1].coefficients.d_s_per_token2, 4);
    EXPECT_TRUE(one.latency->TensorAt(0).empty());
  }
  // The rows may stand before the sizes.
  EXPECT_TRUE(ParseProfile("{\"tensor\": [" + two + "], " + sizes.substr(1) + "}").ok());
  EXPECT_EQ(ProfileJson(*LoadProfile("llama3-8b-a100")).find("tensor"), std::string::npos);
  const std::pair<std::string, const char*> wrong[] = {
      {"3", "tensor is 3, not an array"},
      {"[3]", "tensor[0] is 3, not an object"},
      {R"([{"tp": 2, "a_s": 1, )" + rest + "]", "tensor[0].instances is missing"},
      {R"([{"instances": 4, "a_s": 1, )" + rest + "]", "tensor[0].tp is missing"},
      {R"([{"instances": 4, "tp": 2, )" + rest + "]", "tensor[0].a_s is missing"},
      {R"([{"instances": 4, "tp": 1.5, "a_s": 1, )" + rest + "]",
       "tensor[0].tp is 1.5, not a whole number between 1 and 65536"},
      {R"([{"instances": 4, "tp": 2, "x": 2, "a_s": 1, )" + rest + "]",
       "tensor[0].x is not a coefficient"},
      {R"([{"instances": 2, "tp": 2, "a_s": 1, )" + rest + "]",
       "instances 2, tp 2: sp has no such size"},
      {R"([{"instances": 4, "tp": 8, "a_s": 1, )" + rest + "]",
       "instances 4, tp 8: tp is not a power of two in 2 ... 4"},
      {"[" + two + ", " + two + "]", "instances 4, tp 2: occurs twice"}};
  for (const auto& [rows, why] : wrong) {
    EXPECT_EQ(ParseProfile(sizes + with(rows)).status().message(), why) << rows;
  }
}

TEST(Profile, MayHaveFormationsAlone) {
  const auto profile = ParseProfile(R"({"formations": [{"instances": 2, "gain": 1.5}]})");
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_FALSE(profile->latency.has_value());
  EXPECT_EQ(ProfileJson(*profile).find("sp"), std::string::npos);
  EXPECT_TRUE(ParseProfile(ProfileJson(*profile)).ok());
  const std::string path = ::testing::TempDir() + "/formations.json";
  std::ofstream(path) << ProfileJson(*profile);
  EXPECT_TRUE(LoadProfile(path).ok());
  EXPECT_EQ(LoadLatencyProfile(path).status().message(), "'" + path + "': sp is missing");
  EXPECT_EQ(Why(R"({"formations": [], "tensor": [{"instances": 2, "tp": 2, "a_s": 1,
      "b_s_per_token": 1, "c_s_per_token2": 1, "d_s_per_token2": 1}]})"),
            "sp is missing, which tensor needs");
}

// As --prefill-tp says it.
TEST(Profile, IsTakenWithinNodesAndWithAPinnedTp) {
  using scheduler::SpCoefficients;
  const SpCoefficients one{2, 1, 0, 0}, two{1, 1, 0, 0};
  const auto model =
      *scheduler::LatencyModel::Make({{1, one}, {4, one}}, {{4, 2, two}, {4, 4, two}});
  EXPECT_EQ(WithinNodes(model, 8, "auto")->ChooseTp(4, 0, 1, 4), 2) << "the smallest of equal ones";
  EXPECT_EQ(WithinNodes(model, 1, "auto")->ChooseTp(4, 0, 1, 4), 1);
  EXPECT_EQ(WithinNodes(model, 8, "8")->ChooseTp(4, 0, 1, 4), 4);
  EXPECT_EQ(WithinNodes(model, 8, "1")->ChooseTp(4, 0, 1, 4), 1);
  EXPECT_EQ(WithinNodes(model, 8, "3").status().message(), "'3' is not auto, 1, 2, 4 or 8");
}

TEST(Profile, SaysWhichFormationsGain) {
  const std::string text = R"({"sp": {"1": {"a_s": 0, "b_s_per_token": 1e-4,
      "c_s_per_token2": 0, "d_s_per_token2": 0}}, "formations": )";
  const auto profile = ParseProfile(
      text +
      R"([{"instances": 2, "gain": 1.6, "shift_tokens": 96}, {"instances": 4, "gain": 2},
          {"instances": 8, "gain": 3, "shift_tokens": 0, "shift_tp": 4}]})");
  ASSERT_TRUE(profile.ok()) << profile.status();
  const auto again = ParseProfile(ProfileJson(*profile));
  ASSERT_TRUE(again.ok()) << again.status();
  for (const Profile& one : {*profile, *again}) {
    EXPECT_EQ(one.formations->gains, (std::map<int32_t, double>{{2, 1.6}, {4, 2}, {8, 3}}));
    using Shifts = std::map<int32_t, scheduler::ShiftRule>;
    EXPECT_EQ(one.formations->shifts, (Shifts{{2, scheduler::ShiftRule{.tokens = 96}},
                                              {8, scheduler::ShiftRule{.tokens = 0, .tp = 4}}}))
        << "without shift_tp it is pure SP";
  }
  const std::pair<const char*, const char*> wrong[] = {
      {R"(3)", "formations is 3, not an array"},
      {R"([{"instances": 3, "gain": 2}])", "formations[0].instances is 3, not 2, 4 or 8"},
      {R"([{"instances": 2}])", "formations[0].gain is missing"},
      {R"([{"instances": 2, "gain": 0}])", "formations[0].gain is 0, not above 0"},
      {R"([{"instances": 2, "gain": 2, "x": 1}])", "formations[0].x is not a key of a formation"},
      {R"([{"instances": 2, "gain": 2}, {"instances": 2, "gain": 2}])",
       "formations[1].instances: 2 occurs twice"},
      {R"([{"instances": 2, "gain": 2, "shift_tokens": -1}])",
       "formations[0].shift_tokens is -1, not between 0 and 1e9"},
      {R"([{"instances": 2, "gain": 2, "shift_tp": 1}])",
       "formations[0].shift_tp is there without shift_tokens"},
      {R"([{"instances": 4, "gain": 2, "shift_tokens": 1, "shift_tp": 4}])",
       "formations[0].shift_tp is 4, not a power of two below instances, 4"},
      {R"([{"instances": 8, "gain": 2, "shift_tokens": 1, "shift_tp": 3}])",
       "formations[0].shift_tp is 3, not a power of two below instances, 8"},
      {R"([{"instances": 8, "gain": 2, "shift_tokens": 1, "shift_tp": 0}])",
       "formations[0].shift_tp is 0, not a power of two below instances, 8"},
      {R"([{"instances": 8, "gain": 2, "shift_tokens": 1, "shift_tp": 1.5}])",
       "formations[0].shift_tp is 1.5, not a power of two below instances, 8"},
      {R"([{"instances": 8, "gain": 2, "shift_tokens": 1, "shift_tp": "2"}])",
       "formations[0].shift_tp is \"2\", not a number"}};
  for (const auto& [json, why] : wrong) {
    EXPECT_EQ(ParseProfile(text + json + "}").status().message(), why);
  }
}

TEST(Profile, IsBuiltInOrAFile) {
  EXPECT_TRUE(LoadProfile("llama3-8b-a100").ok());
  EXPECT_EQ(LoadProfile("nowhere.json").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(LoadProfile(::testing::TempDir()).status().code(), absl::StatusCode::kNotFound);
  const std::string path = ::testing::TempDir() + "/profile.json";
  std::ofstream(path) << ProfileJson(*LoadProfile("llama3-8b-a100"));
  const auto profile = LoadProfile(path);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->model, "LLaMA3-8B");
}

TEST(Samples, ColumnsStandInAnyOrder) {
  const auto samples = ParseSamples(
      "# measured\r\nseconds, sp ,device,chunk_tokens,history_tokens\r\n0.5,2,cpu,100,7\r\n\r\n"
      "1e-3,1,cpu,1,0\n");
  ASSERT_TRUE(samples.ok()) << samples.status();
  ASSERT_EQ(samples->size(), 2u);
  EXPECT_EQ((*samples)[0].sp, 2);
  EXPECT_EQ((*samples)[0].history_tokens, 7);
  EXPECT_EQ((*samples)[0].chunk_tokens, 100);
  EXPECT_EQ((*samples)[1].seconds, 1e-3);
  EXPECT_EQ(ParseSamples("sp,chunk_tokens,seconds\n1,2,3")->front().history_tokens, 0);
}

TEST(Samples, AreRefusedWithLineAndColumn) {
  const auto why = [](std::string_view csv) {
    return std::string(ParseSamples(csv).status().message());
  };
  EXPECT_NE(why("").find("the file has no samples"), std::string::npos);
  EXPECT_NE(why("sp,seconds\n").find("line 1: the header has no column 'chunk_tokens'"),
            std::string::npos);
  EXPECT_NE(why("sp,chunk_tokens,seconds\n1,2,3\n1,x,3").find("line 3: chunk_tokens: 'x'"),
            std::string::npos);
  EXPECT_NE(why("sp,chunk_tokens,seconds\n1,2").find("seconds: ''"), std::string::npos);
  EXPECT_NE(why("sp,chunk_tokens,seconds\n1.5,2,3").find("sp: '1.5'"), std::string::npos);
}

TEST(Profile, TheThresholdOfSharedWeightsIsKept) {
  const auto profile = ParseProfile(R"({"formations": [], "shared_batch_threshold": 64})");
  ASSERT_TRUE(profile.ok()) << profile.status();
  const auto again = ParseProfile(ProfileJson(*profile));
  ASSERT_TRUE(again.ok()) << again.status();
  for (const Profile& one : {*profile, *again}) {
    EXPECT_EQ(one.formations->shared_batch_threshold, 64);
    EXPECT_TRUE(one.formations->gains.empty());
  }
  EXPECT_FALSE(ParseProfile(R"({"formations": []})")->formations->shared_batch_threshold);
  for (const std::string wrong : {"0", "1.5", "2000000", "true"}) {
    const auto refused =
        ParseProfile(R"({"formations": [], "shared_batch_threshold": )" + wrong + "}");
    const std::string why(refused.status().message());
    EXPECT_NE(why.find("shared_batch_threshold is " + wrong), std::string::npos) << why;
  }
}

}  // namespace
}  // namespace skein::services
