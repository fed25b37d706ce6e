#include "services/skeinctl/cluster/cluster_view.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "services/skeinctl/cluster/health.h"
#include "services/skeinctl/terminal/screen.h"
#include "services/skeinctl/terminal/table.h"

namespace skein::services {
namespace {

v1::StatusResponse Example() {
  v1::StatusResponse status;
  status.set_invariants("ok");
  status.set_version("1.2.3");
  status.set_uptime_us(3'720'000'000);
  for (int i = 1; i <= 2; ++i) {
    v1::InstanceStatus* instance = status.add_instances();
    instance->set_instance(static_cast<uint64_t>(i));
    instance->set_serving(true);
    v1::RegisterRequest* registration = instance->mutable_registration();
    registration->set_role(i == 1 ? v1::ROLE_PREFILL : v1::ROLE_DECODE);
    registration->set_model("m");
    registration->set_host("h");
    registration->set_pid(100 + i);
    registration->set_endpoint("127.0.0.1:" + std::to_string(1000 * i));
    instance->mutable_load()->set_invariants_ok(true);
    instance->mutable_load()->set_running(static_cast<uint64_t>(3 * i));
    instance->mutable_load()->set_tokens_per_second(50);
    auto* blocks = instance->mutable_load()->mutable_blocks();
    blocks->set_free(6);
    blocks->set_held(3);
    blocks->set_cached(1);
    blocks->set_total(10);
  }
  v1::ModelHealth* model = status.add_models();
  model->set_model("m");
  model->set_prefill_serving(1);
  model->set_decode_serving(1);
  status.add_routers()->mutable_identity()->set_endpoint("127.0.0.1:8000");
  return status;
}

v1::GoneStatus* Lose(v1::StatusResponse* status) {
  v1::GoneStatus* gone = status->add_gone();
  gone->set_instance(9);
  gone->set_role(v1::ROLE_DECODE);
  gone->set_model("m");
  gone->set_endpoint("127.0.0.1:9000");
  gone->set_gone_us(12'000'000);
  gone->set_why("was lost: its lease expired");
  return gone;
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Status, AStepThatRunsForTooLongIsAReason) {
  v1::StatusResponse status = Example();
  v1::InstanceStatus* instance = status.mutable_instances(1);
  instance->set_serving(false);  // for any reason: avoided, or no report yet
  instance->mutable_load()->set_step_age_us(9'000'000);
  EXPECT_EQ(HealthOf(status).level, Health::Level::kHealthy) << "no estimate of the first step";
  instance->mutable_load()->set_step_age_us(90'000'000);
  EXPECT_EQ(HealthOf(status).level, Health::Level::kDegraded) << "too long for any";
  instance->mutable_load()->set_step_estimate_us(10'000'000);
  EXPECT_EQ(HealthOf(status).level, Health::Level::kHealthy) << "a slow device";
  instance->mutable_load()->set_step_estimate_us(1'000'000);
  const Health health = HealthOf(status);
  EXPECT_EQ(health.level, Health::Level::kDegraded);
  ASSERT_EQ(health.reasons.size(), 1u);
  EXPECT_TRUE(Has(health.reasons[0],
                  "instance 2 (127.0.0.1:2000) receives no new requests: its current engine step"))
      << health.reasons[0];
}

TEST(Status, APeerThatDoesNotFitTheClusterIsAReason) {
  v1::StatusResponse status = Example();
  EXPECT_FALSE(Has(StatusTable(status, {}, {}), "REFUSED"));
  v1::RefusedPeer* peer = status.add_refused_peers();
  peer->set_what("decode-worker");
  peer->set_model("m");
  peer->set_endpoint("127.0.0.1:9001");
  peer->set_version("0.9.0");
  peer->set_why("model m: kv_format: this worker 2, its instances 1");
  peer->set_since_us(5'000'000);
  peer->set_times(6);
  const Health health = HealthOf(status);
  EXPECT_EQ(health.level, Health::Level::kDegraded);
  ASSERT_EQ(health.reasons.size(), 1u);
  EXPECT_EQ(health.reasons[0],
            "decode-worker 127.0.0.1:9001 is refused by the orchestrator: model m: kv_format: this "
            "worker 2, its instances 1");
  const std::string table = StatusTable(status, {}, {});
  EXPECT_TRUE(Has(table, "REFUSED")) << table;
  EXPECT_TRUE(Has(table, "0.9.0")) << table;
  const auto json = StatusJson(status);
  ASSERT_EQ(json["refused"].size(), 1u);
  EXPECT_EQ(json["refused"][0]["endpoint"], "127.0.0.1:9001");
  EXPECT_EQ(json["refused"][0]["times"], 6);
}

TEST(Status, BuildsAreInTheJson) {
  v1::StatusResponse status = Example();
  v1::RegisterRequest* registration = status.mutable_instances(0)->mutable_registration();
  registration->mutable_protocol()->set_newest(1);
  registration->set_kv_digest(0xab);
  const auto json = StatusJson(status);
  EXPECT_EQ(json["instances"][0]["protocol"], (std::vector<int>{0, 1}));
  EXPECT_EQ(json["instances"][0]["kv_digest"], "00000000000000ab");
  EXPECT_EQ(json["instances"][1]["protocol"], (std::vector<int>{0, 0})) << "0.3.0";
  EXPECT_EQ(json["routers"][0]["protocol"], (std::vector<int>{0, 0}));
}

TEST(Status, AnInstanceThatIsSlowBesideItsPeersIsAReason) {
  v1::StatusResponse status = Example();
  v1::InstanceStatus* instance = status.mutable_instances(1);
  instance->set_pace("fair");
  EXPECT_EQ(HealthOf(status).level, Health::Level::kHealthy);
  instance->set_pace("slow");
  instance->set_slowness(2.54);
  instance->set_pace_peers(3);
  const Health health = HealthOf(status);
  EXPECT_EQ(health.level, Health::Level::kDegraded);
  ASSERT_EQ(health.reasons.size(), 1u);
  EXPECT_TRUE(Has(health.reasons[0],
                  "instance 2 (127.0.0.1:2000) is slow: its steps take 2.5 times as long as those "
                  "of 3 others; it receives fewer requests"))
      << health.reasons[0];
  EXPECT_EQ(StatusJson(status, {})["instances"][1]["state"], "serving");
  instance->set_pace("aside");
  EXPECT_TRUE(Has(HealthOf(status).reasons.at(0), "its streams went on elsewhere"));
  EXPECT_EQ(StatusJson(status, {})["instances"][1]["state"], "aside");
  instance->set_hangs(true);
  EXPECT_EQ(StatusJson(status, {})["instances"][1]["state"], "hangs");
}

TEST(Status, AnInstanceThatOnlyRoutersHearIsAReason) {
  v1::StatusResponse status = Example();
  v1::InstanceStatus* instance = status.mutable_instances(1);
  instance->set_serving(false);
  instance->set_missed(true);
  instance->set_heard_by(2);
  const std::string table = StatusTable(status);
  EXPECT_TRUE(Has(table, "decode instance 2 (127.0.0.1:2000) does not report")) << table;
  EXPECT_TRUE(Has(table, "missed")) << table;
  EXPECT_EQ(StatusJson(status, {})["instances"][1]["heard_by"], 2);
}

TEST(Status, TheTableShowsHealthRoutersAndInstances) {
  const LocalCluster local{.processes = {{"decode-0", "decode", 102, "", ""}}};
  const std::string table = StatusTable(Example(), ProcessNames(local, "h"));
  for (const char* part : {"skein 1.2.3, up 1 h 2 min: healthy\n", "127.0.0.1:8000", "decode-0",
                           "prefill", "40.0", "serving"}) {
    EXPECT_TRUE(Has(table, part)) << part << "\n" << table;
  }
  EXPECT_FALSE(Has(table, "GONE")) << table;
  EXPECT_FALSE(Has(StatusTable(Example(), ProcessNames(local, "elsewhere")), "decode-0"));
}

TEST(Status, WhatIsLostIsShownWithWhenAndWhy) {
  v1::StatusResponse status = Example();
  Lose(&status);
  const std::string table = StatusTable(status);
  EXPECT_TRUE(Has(table,
                  "degraded\n  decode instance 9 (127.0.0.1:9000) was lost: its lease "
                  "expired, 12 s ago"))
      << table;
  EXPECT_TRUE(Has(table, "GONE")) << table;
}

TEST(Status, InstancesAreSorted) {
  const std::string table = StatusTable(Example(), {}, {.sort = SortBy::kLoad});
  EXPECT_LT(table.find("127.0.0.1:2000"), table.find("127.0.0.1:1000")) << table;
}

size_t LongestLine(const std::string& text) {
  size_t longest = 0;
  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    longest = std::max(longest, end - at);
  }
  return longest;
}

TEST(Status, OnANarrowScreenStandsWhatMattersMost) {
  v1::StatusResponse status = Example();
  Lose(&status);
  for (int i = 0; i < 2; ++i) {
    status.mutable_instances(i)->set_instance(1795382367065960u + static_cast<uint64_t>(i));
  }
  const LocalCluster local{
      .processes = {{"prefill-0", "prefill", 101, "", ""}, {"decode-0", "decode", 102, "", ""}}};
  const std::string table = StatusTable(status, ProcessNames(local, "h"), {.width = 80});
  EXPECT_LE(LongestLine(table), 80u) << table;
  for (const char* part : {"NAME", "decode-0", "TOK/S", "KV %", "40.0", "12 s"}) {
    EXPECT_TRUE(Has(table, part)) << part << "\n" << table;
  }
  EXPECT_FALSE(Has(table, "1795382367065960")) << table;
  // Without names, the ids distinguish instances.
  EXPECT_TRUE(Has(StatusTable(status, {}, {.width = 80}), "1795382367065960"));
  EXPECT_LE(LongestLine(StatusTable(status, {}, {.width = 60})), 60u);
}

TEST(Status, JsonIsOneObjectWithEverything) {
  v1::StatusResponse status = Example();
  Lose(&status);
  const auto json = StatusJson(status);
  EXPECT_EQ(json["health"], "degraded");
  ASSERT_EQ(json["instances"].size(), 2u);
  EXPECT_EQ(json["instances"][1]["role"], "decode");
  EXPECT_EQ(json["instances"][0]["blocks"]["held"], 3);
  EXPECT_EQ(json["instances"][0]["kv_share"], 0.4);
  EXPECT_EQ(json["routers"][0]["router"], "127.0.0.1:8000");
  EXPECT_EQ(json["gone"][0]["why"], "was lost: its lease expired");
}

TEST(Status, ALineSumsUp) {
  const std::string line = StatusLine(Example(), "T");
  EXPECT_EQ(line,
            "T healthy: routers 1/1, prefill 1/1, decode 1/1 serving; prefill 3 running 0 waiting "
            "50 tok/s; decode 6 running 0 waiting 50 tok/s, KV 40.0 % at most; 0 submitted, 0 "
            "failed\n");
}

// A further choice of an answer waits for its first one's prompt: it counts once, with what waits.
TEST(Status, ARequestThatSharesAPromptWaitsForDecode) {
  v1::StatusResponse status = Example();
  status.set_waiting_for_decode(1);
  status.set_reserving(2);
  status.set_sharing(4);
  EXPECT_TRUE(Has(StatusTable(status), " 7 waiting for decode,")) << StatusTable(status);
  EXPECT_EQ(StatusJson(status)["requests"]["reserving"], 2);
  EXPECT_EQ(StatusJson(status)["requests"]["sharing"], 4);
}

TEST(Status, AnIdleInstanceHasNoRate) {
  v1::StatusResponse status = Example();
  status.mutable_instances(0)->mutable_load()->set_running(0);
  EXPECT_EQ(StatusJson(status)["instances"][0]["tokens_per_second"], 0);
}

TEST(Health, FollowsWhatServes) {
  using Level = Health::Level;
  const auto level_of = [](auto change) {
    v1::StatusResponse status = Example();
    change(&status);
    return HealthOf(status).level;
  };
  EXPECT_EQ(level_of([](auto*) {}), Level::kHealthy);
  EXPECT_EQ(level_of([](auto* s) { Lose(s); }), Level::kDegraded);
  EXPECT_EQ(level_of([](auto* s) { Lose(s)->set_replaced(true); }), Level::kHealthy);
  EXPECT_EQ(level_of([](auto* s) { Lose(s)->set_left(true); }), Level::kHealthy);
  EXPECT_EQ(level_of([](auto* s) { s->set_invariants("1: x"); }), Level::kDegraded);
  EXPECT_EQ(level_of([](auto* s) { s->mutable_instances(0)->mutable_load()->set_draining(true); }),
            Level::kHealthy);
  EXPECT_EQ(level_of([](auto* s) { s->mutable_models(0)->set_decode_serving(0); }),
            Level::kCannotServe);
  EXPECT_EQ(level_of([](auto* s) { s->clear_models(); }), Level::kCannotServe);
  EXPECT_EQ(level_of([](auto* s) { s->clear_routers(); }), Level::kCannotServe);
  EXPECT_EQ(level_of([](auto* s) { s->mutable_routers(0)->set_draining(true); }),
            Level::kCannotServe);
  v1::StatusResponse both = Example();
  Lose(&both);
  both.mutable_models(0)->set_decode_serving(0);
  EXPECT_EQ(HealthOf(both).reasons.at(0), "model m has no serving decode instance");
  EXPECT_EQ(ExitCodeOf(HealthOf(both).level), kCannotServe);
}

TEST(Screen, AFrameCutsLinesAndRowsAndClearsTheRest) {
  EXPECT_EQ(Frame("one\ntwo\nthree", 2, 2), "\x1b[Hon\x1b[K\r\ntw\x1b[K\x1b[J");
  EXPECT_EQ(Frame("\x1b[31mred\x1b[0m", 5, 2), "\x1b[H\x1b[31mre\x1b[0m\x1b[K\x1b[J");
  EXPECT_EQ(Frame("\xC3\xA9\xC3\xA9\xC3\xA9", 5, 2), "\x1b[H\xC3\xA9\xC3\xA9\x1b[K\x1b[J");
}

TEST(Table, DurationsHaveTwoUnits) {
  EXPECT_EQ(DurationText(0.25), "0.2 s");
  EXPECT_EQ(DurationText(59.9), "59 s");
  EXPECT_EQ(DurationText(61), "1 min 1 s");
  EXPECT_EQ(DurationText(90061), "1 d 1 h");
}

TEST(Table, TheMostImportantColumnsFit) {
  const std::vector<std::vector<std::string>> rows = {{"A", "B", "C"}, {"aa", "bbbb", "c"}};
  EXPECT_EQ(FittedTable(rows, {"C", "B"}, 7), "B     C\nbbbb  c\n");
  EXPECT_EQ(FittedTable(rows, {"C", "B"}, 6), "C\nc\n");
  EXPECT_EQ(FittedTable(rows, {}, 100), AlignedTable(rows));
}

TEST(Table, NumbersAreAlignedAtTheRight) {
  EXPECT_EQ(AlignedTable({{"A", "N"}, {"x", "1"}, {"yy", "10"}}), "A    N\nx    1\nyy  10\n");
}

}  // namespace
}  // namespace skein::services
