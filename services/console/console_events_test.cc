#include "services/console/console_events.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "services/console/console_view.h"

namespace skein::services {
namespace {

using Json = nlohmann::json;

class ConsoleEventsTest : public ::testing::Test {
 protected:
  ConsoleEventsTest() {
    cell_.name = "a:1";
    cell_.reached = absl::OkStatus();
    cell_.status.set_generation(4);
    for (uint64_t id : {1, 2, 3, 4}) AddInstance(id);
    v1::GroupStatus* group = cell_.groups.add_groups();
    group->set_name("m@n");
    group->set_role(v1::ROLE_DECODE);
    for (uint64_t id : {3, 4, 5, 6}) group->add_members(id);
    AddFormation({3, 4, 5, 6}, "independent", "stands");
    before_ = View();
  }

  void AddInstance(uint64_t id) {
    v1::InstanceStatus* one = cell_.status.add_instances();
    one->set_instance(id);
    one->mutable_registration()->set_role(id <= 2 ? v1::ROLE_PREFILL : v1::ROLE_DECODE);
    one->mutable_registration()->set_node("n");
    one->mutable_load()->set_invariants_ok(true);
    one->set_serving(true);
  }

  v1::GroupStatus::Formation* AddFormation(const std::vector<uint64_t>& members,
                                           const std::string& name, const std::string& stage) {
    auto* one = cell_.groups.mutable_groups(0)->add_formations();
    for (uint64_t id : members) one->add_members(id);
    one->set_name(name);
    one->set_stage(stage);
    return one;
  }

  Json View() { return ViewOf({cell_}, 1'000'000); }

  // What has happened since the call before, as texts.
  std::vector<std::string> Happened() {
    const Json after = View();
    std::vector<std::string> texts;
    const std::vector<ConsoleEvent> events = EventsBetween(before_, after);
    texts.reserve(events.size());
    for (const ConsoleEvent& event : events) texts.push_back(event.text);
    before_ = after;
    return texts;
  }

  using Texts = std::vector<std::string>;

  CellReport cell_;
  Json before_;
};

// As numbers of a page they would be one.
TEST_F(ConsoleEventsTest, IdsKeepAllTheirDigits) {
  constexpr uint64_t kOne = 9007199254740992, kOther = 9007199254740993;
  AddInstance(kOne);
  AddInstance(kOther);
  EXPECT_EQ(Happened(), (Texts{"decode instance 9007199254740992 joined from n",
                               "decode instance 9007199254740993 joined from n"}));
  auto* group = cell_.groups.mutable_groups(0);
  for (const uint64_t id : {kOne, kOther}) group->add_members(id);
  AddFormation({kOne, kOther}, "independent", "stands");
  before_ = View();
  group->mutable_formations(1)->set_name("bound(2)");
  EXPECT_EQ(Happened(), Texts{"instances 9007199254740992, 9007199254740993 are bound(2)"});
  EXPECT_EQ(before_["groups"]["0:m@n"]["formations"][1]["members"],
            Json::array({"9007199254740992", "9007199254740993"}));
  EXPECT_EQ(before_["instances"]["0:9007199254740993"]["id"], "9007199254740993");
}

// An orchestrator that answers for the first time names what may have been there long before.
TEST_F(ConsoleEventsTest, WhoIsThereWhenACellIsFirstHeardHasNotJustJoined) {
  const CellReport heard = cell_;
  cell_ = {.name = "a:1", .reached = absl::UnavailableError("nobody listens")};
  before_ = View();
  cell_ = heard;
  EXPECT_EQ(Happened(), Texts{"the orchestrator of a:1 answers"});
}

TEST_F(ConsoleEventsTest, NothingHappened) { EXPECT_EQ(Happened(), Texts{}); }

TEST_F(ConsoleEventsTest, AKill) {
  cell_.status.mutable_instances()->DeleteSubrange(2, 1);
  v1::GoneStatus* gone = cell_.status.add_gone();
  gone->set_instance(3);
  gone->set_role(v1::ROLE_DECODE);
  gone->set_why("was lost: its lease expired");
  EXPECT_EQ(Happened(), Texts{"decode instance 3 was lost: its lease expired"});
  AddInstance(9);
  EXPECT_EQ(Happened(), Texts{"decode instance 9 joined from n"});
}

TEST_F(ConsoleEventsTest, ADrain) {
  cell_.status.mutable_instances(0)->mutable_load()->set_draining(true);
  EXPECT_EQ(Happened(), Texts{"prefill instance 1 is draining, was serving"});
  cell_.status.mutable_instances()->DeleteSubrange(0, 1);
  v1::GoneStatus* gone = cell_.status.add_gone();
  gone->set_instance(1);
  gone->set_left(true);
  EXPECT_EQ(Happened(), Texts{"prefill instance 1 left"});
}

TEST_F(ConsoleEventsTest, ASwitch) {
  cell_.groups.mutable_groups(0)->clear_formations();
  AddFormation({3, 4}, "bound(2)", "binding")->set_why("operator");
  AddFormation({5, 6}, "independent", "stands")->set_why("another reason");
  EXPECT_EQ(Happened(), Texts{"instances 3, 4: binding to bound(2) (operator)"});
  cell_.groups.mutable_groups(0)->mutable_formations(0)->set_stage("stands");
  EXPECT_EQ(Happened(), Texts{"instances 3, 4 are bound(2) (operator)"});
  cell_.groups.mutable_groups(0)->clear_formations();
  AddFormation({3, 4, 5, 6, 7}, "independent", "stands");
  EXPECT_EQ(Happened(), Texts{"instances 3, 4 are independent"});
}

TEST_F(ConsoleEventsTest, AResume) {
  v1::RequestExplanation* request = cell_.requests.add_requests();
  request->mutable_id()->set_router(7);
  request->mutable_id()->set_serial(1);
  request->add_names("cmpl-1");
  EXPECT_EQ(Happened(), Texts{});
  v1::Degradation* why = request->add_degraded();
  why->set_reason("resumed");
  why->set_times(1);
  EXPECT_EQ(Happened(),
            Texts{"request cmpl-1 was resumed elsewhere, because its instances were lost"});
  EXPECT_EQ(Happened(), Texts{});
  why->set_times(2);
  EXPECT_EQ(Happened().size(), 1U);
}

TEST_F(ConsoleEventsTest, AnotherLeader) {
  cell_.reached = absl::UnavailableError("gone");
  EXPECT_EQ(Happened(), Texts{"the orchestrator of a:1 does not answer (gone)"});
  cell_.reached = absl::OkStatus();
  cell_.status.set_generation(5);
  EXPECT_EQ(Happened(), (Texts{"the orchestrator of a:1 answers",
                               "another orchestrator leads a:1, generation 5"}));
}

TEST_F(ConsoleEventsTest, ANewLeaderHasLostNobodyWhomItDoesNotKnowYet) {
  cell_.status.set_generation(5);
  cell_.status.clear_instances();
  EXPECT_EQ(Happened(), Texts{"another orchestrator leads a:1, generation 5"});
  AddInstance(1);
  EXPECT_EQ(Happened(), Texts{"prefill instance 1 joined from n"});
  cell_.status.clear_instances();
  EXPECT_EQ(Happened(), Texts{"prefill instance 1 was lost"});
}

TEST_F(ConsoleEventsTest, AJob) {
  v1::JobStatus* job = cell_.jobs.add_jobs();
  job->set_id("batch_1");
  job->set_state(v1::JOB_STATE_IN_PROGRESS);
  job->set_lines(10);
  EXPECT_EQ(Happened(), Texts{"job batch_1 is in_progress"});
  job->set_completed(10);
  EXPECT_EQ(Happened(), Texts{});
  job->set_state(v1::JOB_STATE_COMPLETED);
  EXPECT_EQ(Happened(), Texts{"job batch_1 is completed, 10 of 10 lines done"});
}

TEST(ConsoleEvents, AreBounded) {
  ConsoleEvents events;
  events.Add(std::vector<ConsoleEvent>(500, {"state", "info", "x", ""}), 1);
  Json view = events.View();
  EXPECT_EQ(view.size(), ConsoleEvents::kAtOnce);
  EXPECT_EQ(view["50"]["text"], "and 451 more events at once");
  for (int i = 0; i < 300; ++i) events.Add({{"state", "info", "y", ""}}, 2);
  view = events.View();
  EXPECT_EQ(view.size(), ConsoleEvents::kKept);
  EXPECT_TRUE(view.contains("350"));
  EXPECT_FALSE(view.contains("150"));
}

TEST(ConsoleView, HasNoNull) {
  CellReport cell;
  cell.status.add_instances();
  cell.status.add_routers();
  cell.status.add_gone();
  cell.requests.add_requests()->add_plans();
  cell.groups.add_groups()->add_formations();
  cell.jobs.add_jobs();
  const std::string text = ViewOf({cell, cell}, 5).dump();
  EXPECT_EQ(text.find("null"), std::string::npos) << text;
}

}  // namespace
}  // namespace skein::services
