#include "services/skeinctl/cluster/explain.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace skein::services {
namespace {

v1::ExplainResponse Example() {
  v1::ExplainResponse response;
  v1::RequestExplanation* request = response.add_requests();
  request->mutable_id()->set_router(7);
  request->mutable_id()->set_serial(9);
  request->add_names("cmpl-1");
  request->set_model("m");
  request->set_prompt_tokens(96);
  request->set_policy("tetris");
  request->set_state("prefilling");
  request->set_placed_s(0.25);
  auto* parked = request->add_degraded();
  parked->set_reason("parked");
  parked->set_times(1);
  v1::PlanExplanation* plan = request->add_plans();
  plan->set_epoch(12);
  plan->set_how("tetris");
  plan->set_ttft_s(1.5);
  plan->set_improvement_rate(0.3);
  for (const uint64_t instances : {1, 2}) {
    auto* chunk = plan->add_chunks();
    chunk->set_tokens(48);
    for (uint64_t i = 1; i <= instances; ++i) chunk->add_instances(i);
    chunk->set_estimated_end_s(0.75 * static_cast<double>(instances));
  }
  plan->mutable_chunks(0)->set_start_s(0.125);
  auto* queue = plan->add_queue();
  queue->set_instance(1);
  queue->set_queue_s(0.5);
  auto* one = plan->add_alternatives();
  one->set_sp(2);
  one->set_ttft_s(2);
  one->set_why("its chunks end earlier");
  plan->set_decode_instance(9);
  plan->set_formation_instances(2);
  plan->set_formation_epoch(77);
  auto* handoff = plan->add_handoffs();
  handoff->set_prefill_instance(1);
  handoff->mutable_path()->set_path("direct");
  handoff->mutable_path()->set_transport("tcp");
  handoff->mutable_path()->set_retries(1);
  handoff->mutable_path()->set_commit_unanswered(true);
  handoff->set_slower("over TCP: two hosts");
  auto* ring = plan->add_rings();
  ring->set_prefill_instance(1);
  ring->mutable_path()->set_through_host(true);
  ring->mutable_path()->set_why("ipc: no permission");
  plan->add_rings()->set_prefill_instance(2);
  return response;
}

TEST(Explain, TextShowsThePlanAndItsAlternatives) {
  const std::string text = ExplainText(Example());
  for (const char* part :
       {"request 7/9 cmpl-1: 96 prompt tokens", "prefilling\n", "reserved after 0.250 s",
        "  degraded: parked, 1 time\n", "plan of epoch 12",
        "estimated time to first token 1.500 s; improvement rate 0.300",
        "estimated 0.000 s to 0.750 s; actual: started 0.125 s, running; instances 1\n",
        "actual: not started; instances 1 2\n", "0.000 s to 2.000 s: its chunks end earlier",
        "queue times by instance: 1: 0.500 s\n",
        "    KV of instance 1 to decode instance 9: direct by tcp; OpenTransfer and Commit were "
        "sent "
        "again 1 time; Commit was never answered, and counts as done; no faster path: over TCP: "
        "two hosts\n",
        "    exchange of instance 1 with the others: through host memory; no faster path: ipc: no "
        "permission\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_EQ(text.find("exchange of instance 2"), std::string::npos) << text;
}

// The plan of Example, with a bind that has ended and a release that has not.
v1::ExplainResponse Switched() {
  v1::ExplainResponse response = Example();
  v1::PlanExplanation* plan = response.mutable_requests(0)->mutable_plans(0);
  plan->set_switches_left_out(3);
  v1::PlanExplanation::Switch* bind = plan->add_switches();
  bind->set_start_s(-0.5);
  bind->set_end_s(0.25);
  bind->set_formation_epoch(78);
  bind->set_from_instances(1);
  bind->set_to_instances(4);
  bind->set_cause("operator");
  bind->set_why("pinned by an operator");
  bind->set_own("hard");
  bind->set_outcome("aborted");
  bind->set_reason("instance 3 left");
  bind->set_meaning("alone");
  v1::PlanExplanation::Switch* release = plan->add_switches();
  release->set_start_s(1);
  release->set_formation_epoch(79);
  release->set_from_instances(2);
  release->set_to_instances(1);
  release->set_cause("load");
  release->set_why("busy");
  release->set_own("share");
  release->set_meaning("in_group");
  return response;
}

TEST(Explain, TextTellsTheSwitchesOfTheDecodeGroup) {
  v1::ExplainResponse response = Switched();
  const std::string running = ExplainText(response);
  for (const char* part :
       {"    switches of the group of instance 9 meanwhile:\n      (3 earlier not kept)\n",
        "      -0.500 s to 0.250 s: independent to bound(4), cause: operator (pinned by an "
        "operator); aborted: instance 3 left; its instance went on with it alone\n",
        "      from 1.000 s on: bound(2) to independent, cause: load (busy); under way; the group "
        "went on with it\n"}) {
    EXPECT_NE(running.find(part), std::string::npos) << part << "\n" << running;
  }
  response.mutable_requests(0)->set_ended_s(2);
  const std::string ended = ExplainText(response);
  EXPECT_NE(ended.find("(busy); it had not ended; the group went on"), std::string::npos) << ended;
  EXPECT_EQ(ExplainText(Example()).find("switches"), std::string::npos);
}

TEST(Explain, JsonTellsTheSwitchesOfTheDecodeGroup) {
  const auto plan = nlohmann::json::parse(ExplainJson(Switched()))["requests"][0]["plans"][0];
  EXPECT_EQ(plan["switches_left_out"], 3);
  ASSERT_EQ(plan["switches"].size(), 2u);
  EXPECT_EQ(plan["switches"][0], (nlohmann::json{{"start_s", -0.5},
                                                 {"end_s", 0.25},
                                                 {"formation_epoch", 78},
                                                 {"from_instances", 1},
                                                 {"to_instances", 4},
                                                 {"shared", nullptr},
                                                 {"cause", "operator"},
                                                 {"why", "pinned by an operator"},
                                                 {"own", "hard"},
                                                 {"outcome", "aborted"},
                                                 {"reason", "instance 3 left"},
                                                 {"meaning", "alone"}}));
  EXPECT_TRUE(plan["switches"][1]["end_s"].is_null());
  EXPECT_TRUE(plan["switches"][1]["outcome"].is_null());
  EXPECT_TRUE(plan["switches"][1]["reason"].is_null());
  EXPECT_EQ(nlohmann::json::parse(ExplainJson(Example()))["requests"][0]["plans"][0]["switches"],
            nlohmann::json::array());
}

TEST(Explain, InstancesThatShareTheirWeightsAreNotBound) {
  v1::ExplainResponse response = Switched();
  v1::PlanExplanation* plan = response.mutable_requests(0)->mutable_plans(0);
  plan->mutable_switches(0)->set_shared(v1::SHARED_MODE_WAS);
  plan->mutable_switches(1)->set_shared(v1::SHARED_MODE_CAS);
  const std::string text = ExplainText(response);
  EXPECT_NE(text.find(": independent to shared(was), cause"), std::string::npos) << text;
  EXPECT_NE(text.find(": shared(cas) to independent, cause"), std::string::npos) << text;
  const auto told = nlohmann::json::parse(ExplainJson(response))["requests"][0]["plans"][0];
  EXPECT_EQ(told["switches"][0]["shared"], "was");
  EXPECT_EQ(told["switches"][1]["shared"], "cas");
}

TEST(Explain, AChunkHasTheShapeOfItsInstances) {
  v1::ExplainResponse response = Example();
  auto* chunk = response.mutable_requests(0)->mutable_plans(0)->mutable_chunks(1);
  const auto json = [&] {
    return nlohmann::json::parse(ExplainJson(response))["requests"][0]["plans"][0]["chunks"];
  };
  EXPECT_NE(ExplainText(response).find("tokens  SP 2    estimated"), std::string::npos);
  EXPECT_EQ(json()[1]["tp"], 1);
  chunk->set_tp(2);
  EXPECT_NE(ExplainText(response).find("tokens  SP 1 x TP 2 estimated"), std::string::npos);
  EXPECT_EQ(json()[0]["tp"], 1);
  EXPECT_EQ(json()[1]["tp"], 2);
}

TEST(Explain, NothingOfWhatHasEndedGoesOnNow) {
  v1::ExplainResponse response = Example();
  v1::RequestExplanation* request = response.mutable_requests(0);
  request->set_state("completed: max_tokens");
  request->set_output_tokens(1);
  request->set_first_token_s(0.5);
  request->set_ended_s(0.625);
  const std::string text = ExplainText(response);
  for (const char* part :
       {"  completed: max_tokens, 1 output token\n",
        "first token after 0.500 s; ended after 0.625 s\n",
        "actual: started 0.125 s, not finished; instances 1\n", "actual: no start reported;"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_EQ(text.find("now"), std::string::npos) << text;
  EXPECT_EQ(text.find("running"), std::string::npos) << text;
}

TEST(Explain, JsonHasNullForWhatHasNotHappened) {
  const auto json = nlohmann::json::parse(ExplainJson(Example()));
  const auto& request = json["requests"][0];
  EXPECT_EQ(request["id"], "7/9");
  EXPECT_EQ(request["placed_s"], 0.25);
  EXPECT_TRUE(request["ended_s"].is_null());
  EXPECT_EQ(request["degraded"], (nlohmann::json{{"parked", 1}}));
  const auto& plan = request["plans"][0];
  EXPECT_EQ(plan["chunks"][1]["instances"], nlohmann::json({1, 2}));
  EXPECT_EQ(plan["chunks"][0]["start_s"], 0.125);
  EXPECT_TRUE(plan["chunks"][0]["end_s"].is_null());
  EXPECT_TRUE(plan["lost"].is_null());
  EXPECT_EQ(plan["decode_instance"], 9);
  EXPECT_EQ(plan["formation_instances"], 2);
  EXPECT_EQ(plan["formation_epoch"], 77);
  EXPECT_EQ(plan["handoffs"][0]["transport"], "tcp");
  EXPECT_EQ(plan["handoffs"][0]["slower"], "over TCP: two hosts");
  EXPECT_EQ(plan["handoffs"][0]["retries"], 1);
  EXPECT_TRUE(plan["handoffs"][0]["commit_unanswered"]);
  EXPECT_EQ(plan["rings"][0]["why"], "ipc: no permission");
  EXPECT_FALSE(plan["rings"][1]["through_host"]);
}

}  // namespace
}  // namespace skein::services
