#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "services/skeinctl/explain.h"

namespace skein::services {
namespace {

using Json = nlohmann::ordered_json;

std::string IdOf(const v1::RequestId& id) { return absl::StrCat(id.router(), "/", id.serial()); }

std::string Time(double seconds) { return absl::StrFormat("%.3f s", seconds); }

std::string ChunkText(const v1::PlanExplanation::Chunk& chunk) {
  std::string actual = "not begun";
  if (chunk.has_start_s()) {
    actual = absl::StrCat("was ", Time(chunk.start_s()), " to ",
                          chunk.has_end_s() ? Time(chunk.end_s()) : "now");
  }
  return absl::StrFormat("%9d tokens  SP %-4d foreseen %s to %s, %s; instances %s", chunk.tokens(),
                         chunk.instances_size(), Time(chunk.foreseen_start_s()),
                         Time(chunk.foreseen_end_s()), actual,
                         absl::StrJoin(chunk.instances(), " "));
}

std::string PlanText(const v1::PlanExplanation& plan) {
  std::string text = absl::StrFormat("  plan of epoch %d, decided %s after submission: %s\n",
                                     plan.epoch(), Time(plan.decided_s()), plan.how());
  absl::StrAppendFormat(&text, "    first token foreseen after %s; improvement rate %.3f\n",
                        Time(plan.ttft_s()), plan.improvement_rate());
  for (const auto& chunk : plan.chunks()) absl::StrAppend(&text, "    ", ChunkText(chunk), "\n");
  if (!plan.alternatives().empty()) absl::StrAppend(&text, "    as one chunk:\n");
  for (const auto& one : plan.alternatives()) {
    absl::StrAppendFormat(&text, "      SP %-4d from %s, first token after %s: %s\n", one.sp(),
                          Time(one.start_s()), Time(one.ttft_s()), one.why());
  }
  if (!plan.queue().empty()) absl::StrAppend(&text, "    queue times:");
  for (const auto& queue : plan.queue()) {
    absl::StrAppendFormat(&text, " %d: %s", queue.instance(), Time(queue.queue_s()));
  }
  if (!plan.queue().empty()) text += "\n";
  if (!plan.lost().empty()) absl::StrAppend(&text, "    given up: ", plan.lost(), "\n");
  return text;
}

std::string RequestText(const v1::RequestExplanation& request) {
  std::string text =
      absl::StrFormat("request %s%s%s: %d prompt tokens, model %s, policy %s\n", IdOf(request.id()),
                      request.names().empty() ? "" : " ", absl::StrJoin(request.names(), " "),
                      request.prompt_tokens(), request.model(), request.policy());
  absl::StrAppendFormat(&text, "  submitted %s ago; ", Time(request.age_s()));
  if (request.has_placed_s())
    absl::StrAppend(&text, "placed after ", Time(request.placed_s()), "; ");
  if (request.has_prefilled_s()) {
    absl::StrAppend(&text, "KV handed over after ", Time(request.prefilled_s()), "; ");
  }
  if (request.has_ended_s()) absl::StrAppend(&text, "ended after ", Time(request.ended_s()), ": ");
  absl::StrAppend(&text, request.state(), "\n");
  for (const auto& plan : request.plans()) absl::StrAppend(&text, PlanText(plan));
  return text;
}

Json ChunkJson(const v1::PlanExplanation::Chunk& chunk) {
  Json json;
  json["tokens"] = chunk.tokens();
  json["instances"] = std::vector<uint64_t>(chunk.instances().begin(), chunk.instances().end());
  json["foreseen_start_s"] = chunk.foreseen_start_s();
  json["foreseen_end_s"] = chunk.foreseen_end_s();
  json["start_s"] = chunk.has_start_s() ? Json(chunk.start_s()) : Json();
  json["end_s"] = chunk.has_end_s() ? Json(chunk.end_s()) : Json();
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
