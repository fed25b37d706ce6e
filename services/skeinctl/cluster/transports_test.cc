#include "services/skeinctl/cluster/transports.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace skein::services {
namespace {

void Add(v1::StatusResponse* status, uint64_t id, v1::Role role, const std::string& endpoint,
         const std::string& model = "m") {
  v1::InstanceStatus* const instance = status->add_instances();
  instance->set_instance(id);
  instance->mutable_registration()->set_role(role);
  instance->mutable_registration()->set_endpoint(endpoint);
  instance->mutable_registration()->set_model(model);
}

// Prefill 1 moved KV to decode 3 in two ways, and nothing to decode 4; prefill 2 does not answer.
// Decode 5 has another model.
v1::StatusResponse Cluster() {
  v1::StatusResponse status;
  Add(&status, 1, v1::ROLE_PREFILL, "h:1");
  Add(&status, 2, v1::ROLE_PREFILL, "h:2");
  Add(&status, 3, v1::ROLE_DECODE, "h:3");
  Add(&status, 4, v1::ROLE_DECODE, "h:4");
  Add(&status, 5, v1::ROLE_DECODE, "h:5", "other");
  return status;
}

constexpr char kAnswer[] = R"({"handoffs": [
  {"endpoint": "h:3", "transport": "mapped+ring", "path": "direct", "bytes": 2000000000,
   "gb_per_s": 8.25, "why_not_faster": ""},
  {"endpoint": "h:3", "transport": "tcp", "path": "direct", "bytes": 500000000, "gb_per_s": 1.5,
   "why_not_faster": "its memory cannot be mapped here: not a process of this host"},
  {"endpoint": "h:9", "transport": "tcp", "path": "direct", "bytes": 1, "gb_per_s": 1,
   "why_not_faster": ""}],
 "groups": [{"instances": 2, "path": "host", "bytes": 3000000000, "gb_per_s": 0.5,
   "best_gb_per_s": 2.5, "why_not_faster": "no GPU"}]})";

// Of decode instance 3: its node has four.
constexpr char kGroups[] = R"({"handoffs": [], "groups": [
  {"instances": 2, "path": "ipc", "bytes": 0, "gb_per_s": 0, "best_gb_per_s": 0,
   "why_not_faster": ""},
  {"instances": 4, "path": "host", "bytes": 4000000000, "gb_per_s": 1, "best_gb_per_s": 1.25,
   "why_not_faster": "ipc: GPU 2 cannot be read"}]})";

TransportsView View() {
  return ViewOf(Cluster(), {{1, {kAnswer, ""}},
                            {2, {"", "h:2 does not answer"}},
                            {3, {kGroups, ""}},
                            {4, {"{}", ""}},
                            {5, {"{}", ""}}});
}

TEST(Transports, EachPairOfAModelHasARowForEachWay) {
  const TransportsView view = View();
  ASSERT_EQ(view.handoffs.size(), 5u);
  const auto expect = [&](size_t row, uint64_t from, uint64_t to, const std::string& transport) {
    EXPECT_EQ(view.handoffs[row].from, from);
    EXPECT_EQ(view.handoffs[row].to, to);
    EXPECT_EQ(view.handoffs[row].transport, transport);
  };
  expect(0, 1, 3, "mapped+ring");
  expect(1, 1, 3, "tcp");
  expect(2, 1, 4, "");
  expect(3, 2, 3, "");
  expect(4, 2, 4, "");
  EXPECT_EQ(view.handoffs[0].gb_per_s, 8.25);
}

TEST(Transports, RingStepsAndDecodeGroupsHaveARowForEachSize) {
  const TransportsView view = View();
  ASSERT_EQ(view.groups.size(), 4u);
  const auto expect = [&](size_t row, uint64_t instance, const std::string& role, int64_t size) {
    EXPECT_EQ(view.groups[row].instance, instance);
    EXPECT_EQ(view.groups[row].role, role);
    EXPECT_EQ(view.groups[row].instances, size);
  };
  expect(0, 1, "prefill", 2);
  expect(1, 2, "prefill", 0);
  EXPECT_EQ(view.groups[1].error, "h:2 does not answer");
  expect(2, 3, "decode", 2);
  expect(3, 3, "decode", 4);
  EXPECT_EQ(view.groups[3].why_not_faster, "ipc: GPU 2 cannot be read");
}

TEST(Transports, RingStepsAreShownWithoutADecodeInstance) {
  v1::StatusResponse status;
  Add(&status, 1, v1::ROLE_PREFILL, "h:1");
  const std::string table = TransportsTable(ViewOf(status, {{1, {kAnswer, ""}}}));
  for (const char* const part :
       {"no pair of a prefill and a decode instance\n", "STEPS OF", "1 (h:1)", "2.500", "no GPU"}) {
    EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
  }
}

TEST(Transports, TheTableSaysWhichWayHowFastAndWhy) {
  const std::string table = TransportsTable(View());
  for (const char* const part :
       {"1 (h:1)", "3 (h:3)", "mapped+ring", "8.250", "2.000", "not a process of this host",
        "no handoff yet", "h:2 does not answer", "STEPS OF", "2.500", "no GPU", "ipc", "1.250",
        "GPU 2 cannot be read"}) {
    EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
  }
  EXPECT_EQ(TransportsTable({}), "no pair of a prefill and a decode instance\n");
}

TEST(Transports, JsonHasNullForWhatIsNotKnown) {
  const auto json = nlohmann::json::parse(TransportsViewJson(View()));
  EXPECT_EQ(json["handoffs"][0]["transport"], "mapped+ring");
  EXPECT_EQ(json["handoffs"][0]["bytes"], 2'000'000'000u);
  EXPECT_TRUE(json["handoffs"][2]["transport"].is_null());
  EXPECT_EQ(json["handoffs"][2]["error"], "");
  EXPECT_EQ(json["handoffs"][3]["error"], "h:2 does not answer");
  EXPECT_EQ(json["groups"][0]["best_gb_per_s"], 2.5);
  EXPECT_EQ(json["groups"][0]["role"], "prefill");
  EXPECT_TRUE(json["groups"][1]["path"].is_null());
  EXPECT_EQ(json["groups"][1]["error"], "h:2 does not answer");
  EXPECT_EQ(json["groups"][2]["path"], "ipc");
}

// A worker of another version, or something else at its port.
TEST(Transports, AnswersThatMakeNoSenseAreNoHandoffs) {
  for (const char* const text : {"", "[]", "{", R"({"handoffs": 3})", R"({"handoffs": [7, {}]})"}) {
    const TransportsView view = ViewOf(Cluster(), {{1, {text, ""}}});
    EXPECT_EQ(view.handoffs[0].transport, "") << text;
    EXPECT_EQ(view.handoffs[2].error, "its admin port was not asked");
  }
}

}  // namespace
}  // namespace skein::services
