#include "services/skeinctl/planning/plan.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "scheduler/plan/tensor_groups.h"
#include "services/base/process.h"
#include "services/codec/profile_json.h"
#include "services/skeinctl/command.h"

namespace skein::services {
namespace {

using Json = nlohmann::ordered_json;

struct Request {
  int64_t prompt_tokens = 0;
  std::vector<double> queue_s;
};

template <typename... Text>
absl::Status Wrong(const Text&... text) {
  return absl::InvalidArgumentError(absl::StrCat(text...));
}

std::string Shown(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80);
}

// JSON has no NaN, but programs write it. As a string it is refused with its field's name.
std::string QuoteNotNumbers(std::string_view line) {
  std::string text;
  bool in_string = false;
  for (size_t i = 0; i < line.size();) {
    bool replaced = false;
    for (const std::string_view word : {"NaN", "nan", "-Infinity", "Infinity", "-inf", "inf"}) {
      if (in_string || line.substr(i, word.size()) != word) continue;
      absl::StrAppend(&text, "\"", absl::string_view(word.data(), word.size()), "\"");
      i += word.size();
      replaced = true;
      break;
    }
    if (replaced) continue;
    if (line[i] == '"') in_string = !in_string;
    text += line[i++];
    if (in_string && text.back() == '\\' && i < line.size()) text += line[i++];
  }
  return text;
}

absl::Status ParseQueue(const Json& json, std::vector<double>* queue_s) {
  if (!json.is_array()) return Wrong("queue_s: ", Shown(json), " is not an array of numbers");
  for (size_t i = 0; i < json.size(); ++i) {
    if (!json[i].is_number())
      return Wrong("queue_s[", i, "]: ", Shown(json[i]), " is not a number");
    queue_s->push_back(json[i].get<double>());
  }
  if (queue_s->empty()) return Wrong("queue_s: [] is empty; give one number for each instance");
  return absl::OkStatus();
}

// "column 5: syntax error ...": the library's text without its codes.
absl::Status WrongJson(const std::string& what) {
  size_t start = what.find("column ");
  if (start == std::string::npos) start = what.find("] ") + 2;
  return Wrong("not valid JSON: ", what.substr(start));
}

absl::StatusOr<Json> ParseJson(std::string_view line) {
  try {
    return Json::parse(QuoteNotNumbers(line));
  } catch (const Json::exception& error) {
    return WrongJson(error.what());
  }
}

absl::StatusOr<Request> ParseRequest(std::string_view line) {
  const absl::StatusOr<Json> parsed = ParseJson(line);
  if (!parsed.ok()) return parsed.status();
  const Json& json = *parsed;
  if (!json.is_object()) return Wrong("the line is ", Shown(json), ", not an object");
  Request request;
  for (const char* name : {"prompt_tokens", "queue_s"}) {
    if (!json.contains(name)) return Wrong(name, " is missing");
  }
  for (const auto& [key, value] : json.items()) {
    if (key == "prompt_tokens") {
      const bool fits = value.is_number_integer() &&
                        (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
      if (!fits) return Wrong("prompt_tokens: ", Shown(value), " is not a whole number of tokens");
      request.prompt_tokens = value.get<int64_t>();
    } else if (key == "queue_s") {
      if (absl::Status status = ParseQueue(value, &request.queue_s); !status.ok()) return status;
    } else {
      return Wrong("'", key, "' is unknown; known: prompt_tokens, queue_s");
    }
  }
  return request;
}

// The planner's times stand for the fastest shape of so many instances. Where those of a chunk
// cannot run it, that one and those behind it end later.
std::string JsonOf(const scheduler::PrefillPlan& plan, const scheduler::LatencyModel& model,
                   const scheduler::Cluster& cluster) {
  scheduler::PlanRanks ranks(cluster);
  int64_t history = 0;
  double before_s = 0;  // the end of the last chunk that ends later
  Json json;
  json["ttft_s"] = plan.ttft_s;
  json["chunks"] = Json::array();
  for (const scheduler::ChunkPlan& chunk : plan.chunks) {
    Json item;
    item["tokens"] = chunk.tokens;
    item["instances"] = chunk.instances;
    item["start_s"] = chunk.start_s;
    item["end_s"] = chunk.end_s;
    if (model.HasShapes()) {
      const int tp = ranks.AddChunk(model, chunk.instances, history, chunk.tokens);
      const auto sp = static_cast<int>(chunk.instances.size());
      const double slower_s = model.SecondsWith(sp, tp, history, chunk.tokens) -
                              model.Seconds(sp, history, chunk.tokens);
      const double later_s = std::max(0.0, before_s - chunk.start_s);
      if (later_s + slower_s > 0) {
        before_s = chunk.end_s + later_s + slower_s;
        item["start_s"] = chunk.start_s + later_s;
        item["end_s"] = before_s;
        json["ttft_s"] = std::max(plan.ttft_s, before_s);
      }
      item["tp"] = tp;
    }
    history += chunk.tokens;
    json["chunks"].push_back(std::move(item));
  }
  return json.dump();
}

int Refused(const absl::Status& status) { return PrintErrors("skeinctl plan", status, kUsage); }

}  // namespace

absl::StatusOr<PlanPolicy> ParsePlanPolicy(std::string_view name) {
  if (name == "tetris") return PlanPolicy::kTetris;
  if (name == "single") return PlanPolicy::kSingle;
  if (name == "rolling") return PlanPolicy::kRolling;
  return Wrong("--policy: '", absl::string_view(name.data(), name.size()),
               "' is not tetris, single or rolling");
}

PlanLines::PlanLines(const scheduler::LatencyModel& model, int node_size, double improvement_rate,
                     PlanPolicy policy)
    : model_(model), node_size_(node_size), policy_(policy) {
  options_.improvement_rate = improvement_rate;
  if (policy == PlanPolicy::kRolling) options_.scope = scheduler::PlanScope::kWide;
}

absl::StatusOr<std::string> PlanLines::Answer(std::string_view line) {
  const auto request = ParseRequest(line);
  if (!request.ok()) return request.status();
  const scheduler::Cluster cluster{static_cast<int>(request->queue_s.size()), node_size_};
  const absl::Status input = scheduler::CheckPlanInput(model_, cluster, request->queue_s,
                                                       request->prompt_tokens, options_);
  if (!input.ok()) return input;
  if (!planner_.has_value() || planner_->cluster().instances != cluster.instances) {
    planner_.emplace(model_, cluster);
  }
  if (policy_ == PlanPolicy::kSingle) {
    planner_->PlanSingleChunk(request->queue_s, request->prompt_tokens, options_, &plan_);
  } else {
    planner_->Plan(request->queue_s, request->prompt_tokens, options_, &plan_);
  }
  return JsonOf(plan_, model_, cluster);
}

void PlanFlags::Register(FlagSet* set) {
  set->About(
      "Plan the prefill of prompts for a given cluster state.\n"
      "\n"
      "Reads one JSON object per line from standard input, with a queue time for each instance:\n"
      "  {\"prompt_tokens\": 131072, \"queue_s\": [0, 0.31]}\n"
      "and writes one per line:\n"
      "  {\"ttft_s\": 1.2, \"chunks\": [{\"tokens\": 131072, \"instances\": [0, 1], \"start_s\": "
      "0.31, "
      "\"end_s\": 1.2}]}\n"
      "A profile with tensor groups adds \"tp\" to each chunk: its instances run it as (instances "
      "/ "
      "tp, tp).");
  set->String(&profile, "profile",
              "Latency profile: a built-in name (llama3-8b-a100, llama3-70b-a100-tp4) or a file "
              "that skeinctl fit or "
              "skeinctl profile wrote.")
      .Value("PROFILE")
      .Required();
  set->Int(&node_size, "node-size", "Instances per node.", 1, 1 << 20);
  set->Double(&improvement_rate, "improvement-rate",
              "Use more instances only if that shortens the time to first token by more than "
              "this fraction, in [0, 1).",
              0, 1);
  set->String(&policy, "policy",
              "tetris: several chunks, as in the paper; single: one chunk; rolling: a wide "
              "search that also tries other nodes and more instances. It plans this prompt "
              "alone; a cluster's rolling planner also considers waiting prompts.")
      .Value("POLICY")
      .OneOf({"tetris", "single", "rolling"});
  set->String(&format, "format",
              "How to report a wrong line. text: on standard error, then stop; json: "
              "{\"line\", \"error\"} in place of its answer, then continue.")
      .OneOf({"text", "json"})
      .Value("FORMAT");
  set->Check([this]() -> absl::Status {
    if (improvement_rate < 1) return absl::OkStatus();
    return Wrong("--improvement-rate: 1 is not in [0, 1)");
  });
}

namespace {

int AnswerAll(PlanLines* lines, bool json) {
  int code = kDone;
  std::string line;
  for (int number = 1; std::getline(std::cin, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto answer = lines->Answer(line);
    const std::string error(answer.status().message());
    if (!answer.ok() && !json) return Refused(Wrong("line ", number, ": ", error));
    if (!answer.ok()) code = kUsage;
    const std::string out = answer.ok() ? *answer
                                        : Json{{"line", number}, {"error", error}}.dump(
                                              -1, ' ', false, Json::error_handler_t::replace);
    std::printf("%s\n", out.c_str());
    std::fflush(stdout);
  }
  return code;
}

}  // namespace

int RunPlan(const PlanFlags& flags) {
  const auto policy = ParsePlanPolicy(flags.policy);
  if (!policy.ok()) return Refused(policy.status());
  const auto profile = LoadLatencyProfile(flags.profile);
  if (!profile.ok()) return Refused(AboutFlag("profile", profile.status()));
  const auto node_size = static_cast<int>(flags.node_size);
  const scheduler::LatencyModel latency = profile->latency->Within({.tp_max = node_size});
  PlanLines lines(latency, node_size, flags.improvement_rate, *policy);
  return AnswerAll(&lines, flags.format == "json");
}

}  // namespace skein::services
