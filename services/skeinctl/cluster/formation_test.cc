#include "services/skeinctl/cluster/formation.h"

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace skein::services {
namespace {

v1::GroupStatus::Formation* Add(const std::vector<uint64_t>& members, const std::string& name,
                                v1::GroupStatus* group) {
  v1::GroupStatus::Formation* formation = group->add_formations();
  for (const uint64_t member : members) formation->add_members(member);
  formation->set_name(name);
  formation->set_stage("stands");
  formation->set_for_us(125'000'000);
  return formation;
}

v1::ListGroupsResponse Example() {
  v1::ListGroupsResponse response;
  v1::GroupStatus* prefill = response.add_groups();
  prefill->set_name("m@a/prefill");
  prefill->set_role(v1::ROLE_PREFILL);
  prefill->add_members(9);
  Add({9}, "independent", prefill);
  v1::GroupStatus* decode = response.add_groups();
  decode->set_name("m@a");
  decode->set_role(v1::ROLE_DECODE);
  decode->set_model("m");
  decode->set_node("a");
  for (const uint64_t member : {1, 2, 3, 4}) decode->add_members(member);
  v1::GroupStatus::Formation* bound = Add({1, 2}, "bound(2)", decode);
  bound->set_epoch(7);
  bound->set_pinned(true);
  bound->set_why("pinned by an operator");
  Add({3, 4}, "independent", decode)->set_stage("preparing");
  decode->set_for_us(1'500'000);
  decode->set_why(
      "quiet: 0.50 sequences an instance, at most 1.00; bound(2) makes tokens 1.62 times as fast "
      "as "
      "one instance does");
  v1::GroupStatus::Rejected* rejected = decode->add_rejected();
  rejected->set_formation("bound(4)");
  rejected->set_why("its gain is 1.01, less than 1.05");
  decode->set_generation(5);
  decode->set_ready(4);
  return response;
}

const InstanceNames kNames = {{1, "1 (decode-0)"}, {2, "2 (decode-1)"}, {3, "3"}};

const std::vector<FormationChecks> kChecks = {
    {.group = "m@a",
     .formation = "bound(2)",
     .epoch = 7,
     .members = {1, 2},
     .checks = {{"steps", Verdict::kPassed, "the same"}, {"bytes", Verdict::kFailed, "none"}}}};

std::vector<v1::GroupStatus> ChosenOf(const std::string& group, bool all) {
  return *Chosen(Example(), group, all);
}

TEST(Formation, GroupsOfPrefillInstancesAreShownOnlyIfAskedFor) {
  ASSERT_EQ(ChosenOf("", false).size(), 1u);
  EXPECT_EQ(ChosenOf("", false)[0].name(), "m@a");
  EXPECT_EQ(ChosenOf("", true).size(), 2u);
  ASSERT_EQ(ChosenOf("m@a/prefill", false).size(), 1u);
  const absl::Status unknown = Chosen(Example(), "m@b", true).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(unknown.message(),
            "--group: 'm@b' is no group of this cluster. Known: m@a/prefill, m@a");
}

TEST(Formation, TextTellsMembersSwitchReasonsAndWhatWasRejected) {
  EXPECT_EQ(
      FormationText(ChosenOf("", false), kNames),
      "m@a: 4 decode instances, communicators ready at 4 of 4\n"
      "  bound(2)      1 (decode-0), 2 (decode-1); the first leads; for 2 min 5 s, "
      "pinned\n"
      "                pinned by an operator\n"
      "  independent   3, 4; for 2 min 5 s\n"
      "                switch under way: preparing\n"
      "  policy        quiet: 0.50 sequences an instance, at most 1.00; bound(2) makes tokens "
      "1.62 times as\n"
      "                fast as one instance does\n"
      "  not bound(4)  its gain is 1.01, less than 1.05\n");
  EXPECT_EQ(FormationText({}, kNames), "no decode instance\n");
}

TEST(Formation, NoLineIsWiderThanATerminal) {
  for (const absl::string_view line :
       absl::StrSplit(FormationText(ChosenOf("", true), kNames, &kChecks), '\n')) {
    EXPECT_LE(line.size(), 100u) << line;
  }
}

TEST(Formation, TextTellsWhatWasVerified) {
  const std::string text = FormationText(ChosenOf("", false), kNames, &kChecks);
  EXPECT_NE(text.find("  verify bound(2)  passed: the same\n                   failed: none\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\nverify: failed\n"), std::string::npos) << text;
  const std::vector<FormationChecks> none;
  EXPECT_NE(FormationText(ChosenOf("", false), kNames, &none).find("verify: nothing is bound\n"),
            std::string::npos);
}

TEST(Formation, JsonHasTheFieldsOfTheGroupPage) {
  const nlohmann::ordered_json json = FormationJson(ChosenOf("", true));
  ASSERT_EQ(json["groups"].size(), 2u);
  EXPECT_EQ(json["groups"][0]["role"], "prefill");
  EXPECT_TRUE(json["groups"][0]["node"].is_null());
  EXPECT_EQ(json["groups"][1]["formations"][0],
            nlohmann::ordered_json({{"name", "bound(2)"},
                                    {"instances", {1, 2}},
                                    {"stage", "stands"},
                                    {"epoch", 7},
                                    {"pinned", true},
                                    {"for_s", 125.0},
                                    {"why", "pinned by an operator"}}));
  EXPECT_EQ(json["groups"][1]["rejected"][0]["formation"], "bound(4)");
  EXPECT_EQ(json["groups"][1]["ready"], 4);
  EXPECT_FALSE(json.contains("verified"));
}

TEST(Formation, JsonHasEachCheck) {
  const nlohmann::ordered_json json = FormationJson(ChosenOf("", false), &kChecks);
  EXPECT_EQ(json["verified"], "failed");
  const nlohmann::ordered_json& check = json["groups"][0]["checks"][1];
  EXPECT_EQ(check["check"], "bytes");
  EXPECT_EQ(check["verdict"], "failed");
  EXPECT_EQ(check["instances"], nlohmann::ordered_json({1, 2}));
}

}  // namespace
}  // namespace skein::services
