#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "scheduler/vocabulary/request_id.h"
#include "services/skeinctl/cluster/explain.h"

namespace skein::services {
namespace {

using Json = nlohmann::ordered_json;

std::string IdOf(const v1::RequestId& id) { return ToString(RequestId{id.router(), id.serial()}); }

std::string Time(double seconds) { return absl::StrFormat("%.3f s", seconds); }

// `over`: the request has ended or the plan was given up, so nothing is still running.
std::string ActualText(const v1::PlanExplanation::Chunk& chunk, bool over) {
  if (!chunk.has_start_s()) {
    if (chunk.has_end_s()) return absl::StrCat("ended by ", Time(chunk.end_s()));
    return over ? "no start reported" : "not started";
  }
  if (chunk.has_end_s()) return absl::StrCat(Time(chunk.start_s()), " to ", Time(chunk.end_s()));
  return absl::StrCat("started ", Time(chunk.start_s()), over ? ", not finished" : ", running");
}

int TpOf(const v1::PlanExplanation::Chunk& chunk) {
  return std::max(1, static_cast<int>(chunk.tp()));
}

std::string ShapeText(const v1::PlanExplanation::Chunk& chunk) {
  const int tp = TpOf(chunk);
  if (tp == 1) return absl::StrCat("SP ", chunk.instances_size());
  return absl::StrCat("SP ", chunk.instances_size() / tp, " x TP ", tp);
}

std::string ChunkText(const v1::PlanExplanation::Chunk& chunk, bool over) {
  return absl::StrFormat("%9d tokens  %-7s estimated %s to %s; actual: %s; instances %s",
                         chunk.tokens(), ShapeText(chunk), Time(chunk.estimated_start_s()),
                         Time(chunk.estimated_end_s()), ActualText(chunk, over),
                         absl::StrJoin(chunk.instances(), " "));
}

std::string PathText(const v1::HandoffPath& path) {
  std::string text = path.path().empty() ? "by an unknown path"
                                         : absl::StrCat(path.path(), " by ", path.transport());
  if (path.retries() > 0) {
    absl::StrAppend(&text, "; OpenTransfer and Commit were sent again ", path.retries(),
                    path.retries() == 1 ? " time" : " times");
  }
  if (path.commit_unanswered()) text += "; Commit was never answered, and counts as done";
  return text;
}

std::string HandoffText(const v1::PlanExplanation::Handoff& handoff, uint64_t decode_instance) {
  std::string text =
      absl::StrCat("KV of instance ", handoff.prefill_instance(), " to decode instance ",
                   decode_instance, ": ", PathText(handoff.path()));
  if (!handoff.slower().empty()) absl::StrAppend(&text, "; no faster path: ", handoff.slower());
  return text;
}

std::string RingText(const v1::PlanExplanation::Ring& ring) {
  return absl::StrCat("exchange of instance ", ring.prefill_instance(),
                      " with the others: through host memory; no faster path: ", ring.path().why());
}

// Empty: its members are bound.
std::string ModeText(v1::SharedMode shared) {
  if (shared == v1::SHARED_MODE_UNSPECIFIED) return "";
  return shared == v1::SHARED_MODE_CAS ? "cas" : "was";
}

std::string FormationText(uint32_t instances, v1::SharedMode shared) {
  if (instances <= 1) return "independent";
  const std::string mode = ModeText(shared);
  return mode.empty() ? absl::StrCat("bound(", instances, ")") : absl::StrCat("shared(", mode, ")");
}

std::string MeaningText(const std::string& meaning) {
  static constexpr std::pair<const char*, const char*> kTexts[] = {
      {"alone", "its instance went on with it alone"},
      {"paused", "it paused while the group had work"},
      {"taken_in", "the group took it over and computed it anew"},
      {"in_group", "the group went on with it"},
      {"taken_back", "its instance took it back from the group and computed it anew"},
      {"lost", "its instance was lost"}};
  for (const auto& [name, text] : kTexts) {
    if (meaning == name) return text;
  }
  return meaning;  // of a later orchestrator
}

std::string SwitchText(const v1::PlanExplanation::Switch& one, bool over) {
  std::string text = absl::StrCat("      ", one.has_end_s() ? "" : "from ", Time(one.start_s()),
                                  one.has_end_s() ? absl::StrCat(" to ", Time(one.end_s())) : " on",
                                  ": ", FormationText(one.from_instances(), one.shared()), " to ",
                                  FormationText(one.to_instances(), one.shared()),
                                  ", cause: ", one.cause(), " (", one.why(), "); ");
  if (one.has_end_s()) {
    absl::StrAppend(&text, one.outcome());
    const bool told = one.reason().empty() || one.reason() == one.why();
    if (!told) absl::StrAppend(&text, ": ", one.reason());
  } else {
    text += over ? "it had not ended" : "under way";
  }
  return absl::StrCat(text, "; ", MeaningText(one.meaning()), "\n");
}

std::string SwitchesText(const v1::PlanExplanation& plan, bool over) {
  if (plan.switches().empty()) return "";
  std::string text = absl::StrFormat("    switches of the group of instance %d meanwhile:\n",
                                     plan.decode_instance());
  if (plan.switches_left_out() > 0) {
    absl::StrAppend(&text, "      (", plan.switches_left_out(), " earlier not kept)\n");
  }
  for (const auto& one : plan.switches()) absl::StrAppend(&text, SwitchText(one, over));
  return text;
}

std::string PlanText(const v1::PlanExplanation& plan, bool ended) {
  std::string text = absl::StrFormat("  plan of epoch %d, decided %s after submission: %s\n",
                                     plan.epoch(), Time(plan.decided_s()), plan.how());
  absl::StrAppendFormat(&text,
                        "    estimated time to first token %s; improvement rate %.3f; times below "
                        "count from the decision\n",
                        Time(plan.ttft_s()), plan.improvement_rate());
  const bool over = ended || !plan.lost().empty();
  for (const auto& chunk : plan.chunks()) {
    absl::StrAppend(&text, "    ", ChunkText(chunk, over), "\n");
  }
  if (!plan.alternatives().empty()) absl::StrAppend(&text, "    single-chunk alternatives:\n");
  for (const auto& one : plan.alternatives()) {
    absl::StrAppendFormat(&text, "      SP %-4d estimated %s to %s: %s\n", one.sp(),
                          Time(one.start_s()), Time(one.ttft_s()), one.why());
  }
  if (!plan.queue().empty()) absl::StrAppend(&text, "    estimated queue times by instance:");
  for (const auto& queue : plan.queue()) {
    absl::StrAppendFormat(&text, " %d: %s", queue.instance(), Time(queue.queue_s()));
  }
  if (!plan.queue().empty()) text += "\n";
  for (const auto& one : plan.handoffs()) {
    absl::StrAppend(&text, "    ", HandoffText(one, plan.decode_instance()), "\n");
  }
  if (plan.formation_epoch() != 0) {
    absl::StrAppendFormat(
        &text, "    decoded by bound(%d), which instance %d leads, formation of epoch %d\n",
        plan.formation_instances(), plan.decode_instance(), plan.formation_epoch());
  }
  absl::StrAppend(&text, SwitchesText(plan, over));
  for (const auto& one : plan.rings()) {
    if (one.path().through_host()) absl::StrAppend(&text, "    ", RingText(one), "\n");
  }
  if (!plan.lost().empty()) absl::StrAppend(&text, "    given up: ", plan.lost(), "\n");
  return text;
}

std::string RequestText(const v1::RequestExplanation& request) {
  std::string text =
      absl::StrFormat("request %s%s%s: %d prompt tokens, model %s, policy %s\n", IdOf(request.id()),
                      request.names().empty() ? "" : " ", absl::StrJoin(request.names(), " "),
                      request.prompt_tokens(), request.model(), request.policy());
  absl::StrAppend(&text, "  ", request.state());
  if (request.has_output_tokens()) {
    absl::StrAppend(&text, ", ", request.output_tokens(), " output token",
                    request.output_tokens() == 1 ? "" : "s");
  }
  absl::StrAppend(&text, "\n  submitted ", Time(request.age_s()), " ago");
  const struct {
    const char* what;
    bool known;
    double seconds;
  } times[] = {{"decode blocks reserved", request.has_placed_s(), request.placed_s()},
               {"KV handed over", request.has_prefilled_s(), request.prefilled_s()},
               {"first token", request.has_first_token_s(), request.first_token_s()},
               {"ended", request.has_ended_s(), request.ended_s()}};
  for (const auto& time : times) {
    if (time.known) absl::StrAppend(&text, "; ", time.what, " after ", Time(time.seconds));
  }
  text += "\n";
  for (const v1::Degradation& one : request.degraded()) {
    absl::StrAppend(&text, "  degraded: ", one.reason(), ", ", one.times(),
                    one.times() == 1 ? " time\n" : " times\n");
  }
  for (const auto& plan : request.plans()) {
    absl::StrAppend(&text, PlanText(plan, request.has_ended_s()));
  }
  return text;
}

Json ChunkJson(const v1::PlanExplanation::Chunk& chunk) {
  Json json;
  json["tokens"] = chunk.tokens();
  json["instances"] = std::vector<uint64_t>(chunk.instances().begin(), chunk.instances().end());
  json["tp"] = TpOf(chunk);
  json["estimated_start_s"] = chunk.estimated_start_s();
  json["estimated_end_s"] = chunk.estimated_end_s();
  json["start_s"] = chunk.has_start_s() ? Json(chunk.start_s()) : Json();
  json["end_s"] = chunk.has_end_s() ? Json(chunk.end_s()) : Json();
  return json;
}

Json SwitchJson(const v1::PlanExplanation::Switch& one) {
  Json json;
  json["start_s"] = one.start_s();
  json["end_s"] = one.has_end_s() ? Json(one.end_s()) : Json();
  json["formation_epoch"] = one.formation_epoch();
  json["from_instances"] = one.from_instances();
  json["to_instances"] = one.to_instances();
  const std::string mode = ModeText(one.shared());
  json["shared"] = mode.empty() ? Json() : Json(mode);
  json["cause"] = one.cause();
  json["why"] = one.why();
  json["own"] = one.own();
  json["outcome"] = one.outcome().empty() ? Json() : Json(one.outcome());
  json["reason"] = one.reason().empty() ? Json() : Json(one.reason());
  json["meaning"] = one.meaning();
  return json;
}

Json PlanJson(const v1::PlanExplanation& plan) {
  Json json;
  json["epoch"] = plan.epoch();
  json["decided_s"] = plan.decided_s();
  json["how"] = plan.how();
  json["improvement_rate"] = plan.improvement_rate();
  json["ttft_s"] = plan.ttft_s();
  json["chunks"] = Json::array();
  for (const auto& chunk : plan.chunks()) json["chunks"].push_back(ChunkJson(chunk));
  json["alternatives"] = Json::array();
  for (const auto& one : plan.alternatives()) {
    json["alternatives"].push_back({{"sp", one.sp()},
                                    {"start_s", one.start_s()},
                                    {"ttft_s", one.ttft_s()},
                                    {"why", one.why()}});
  }
  json["queue"] = Json::array();
  for (const auto& queue : plan.queue()) {
    json["queue"].push_back({{"instance", queue.instance()}, {"queue_s", queue.queue_s()}});
  }
  json["decode_instance"] = plan.decode_instance() == 0 ? Json() : Json(plan.decode_instance());
  json["formation_instances"] = std::max<uint32_t>(1, plan.formation_instances());
  json["formation_epoch"] = plan.formation_epoch();
  json["switches"] = Json::array();
  for (const auto& one : plan.switches()) json["switches"].push_back(SwitchJson(one));
  json["switches_left_out"] = plan.switches_left_out();
  json["handoffs"] = Json::array();
  for (const auto& one : plan.handoffs()) {
    json["handoffs"].push_back({{"prefill_instance", one.prefill_instance()},
                                {"path", one.path().path()},
                                {"transport", one.path().transport()},
                                {"staging_buffer", one.path().staging_buffer()},
                                {"retries", one.path().retries()},
                                {"commit_unanswered", one.path().commit_unanswered()},
                                {"slower", one.slower().empty() ? Json() : Json(one.slower())}});
  }
  json["rings"] = Json::array();
  for (const auto& one : plan.rings()) {
    json["rings"].push_back({{"prefill_instance", one.prefill_instance()},
                             {"through_host", one.path().through_host()},
                             {"why", one.path().why().empty() ? Json() : Json(one.path().why())}});
  }
  json["lost"] = plan.lost().empty() ? Json() : Json(plan.lost());
  return json;
}

Json RequestJson(const v1::RequestExplanation& request) {
  Json json;
  json["id"] = IdOf(request.id());
  json["names"] = std::vector<std::string>(request.names().begin(), request.names().end());
  json["model"] = request.model();
  json["prompt_tokens"] = request.prompt_tokens();
  json["policy"] = request.policy();
  json["state"] = request.state();
  json["age_s"] = request.age_s();
  json["placed_s"] = request.has_placed_s() ? Json(request.placed_s()) : Json();
  json["prefilled_s"] = request.has_prefilled_s() ? Json(request.prefilled_s()) : Json();
  json["ended_s"] = request.has_ended_s() ? Json(request.ended_s()) : Json();
  json["first_token_s"] = request.has_first_token_s() ? Json(request.first_token_s()) : Json();
  json["output_tokens"] = request.has_output_tokens() ? Json(request.output_tokens()) : Json();
  json["degraded"] = Json::object();
  for (const v1::Degradation& one : request.degraded()) {
    json["degraded"][one.reason()] = one.times();
  }
  json["plans"] = Json::array();
  for (const auto& plan : request.plans()) json["plans"].push_back(PlanJson(plan));
  return json;
}

}  // namespace

std::string ExplainText(const v1::ExplainResponse& response) {
  std::string text;
  for (const auto& request : response.requests()) absl::StrAppend(&text, RequestText(request));
  return text;
}

std::string ExplainJson(const v1::ExplainResponse& response) {
  Json json;
  json["requests"] = Json::array();
  for (const auto& request : response.requests()) json["requests"].push_back(RequestJson(request));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace skein::services
