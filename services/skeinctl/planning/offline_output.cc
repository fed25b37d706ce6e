#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "services/skeinctl/planning/offline.h"

namespace skein::services {
namespace {

constexpr char kLegend[] =
    "\n"
    "full        all weights at each instance: TP alone with DP 1, else DP of such instances\n"
    "was         shared weights (SiDP): each instance reads what others own, ahead of its steps\n"
    "cas         shared weights: rows go to the owner of a layer, results come back\n"
    "sidp        was, and cas below the threshold\n"
    "KV          tokens of KV of all instances; 4.2, 4.4: by the two readings of the slots' "
    "memory\n"
    "WEIGHTS     of a device, and its slots\n"
    "B_TH        the smallest batch of an instance at which was is not slower than cas\n"
    "STEP        of decode, with --batch sequences at each instance\n"
    "JOB         from the first step to the last, with the better of a fixed batch of 1,024 over "
    "all\n"
    "            instances and one of as many sequences as have room (BATCH, of an instance)\n"
    "IN CAS      share of the steps\n";

std::string Cell(bool is_known, double value) {
  if (!is_known) return absl::StrFormat("%10s", "-");
  return absl::StrFormat("%10.*f", value >= 100 ? 0 : value >= 10 ? 1 : 2, value);
}

double PerDevice(const OfflineRow& row, double bytes) {
  return bytes / static_cast<double>(row.tp) * 1e-9;
}

void AppendRow(const OfflineRow& row, std::string* text) {
  const bool has_job = row.refused.empty();
  absl::StrAppendFormat(text, "%-6s%4d%4d", row.strategy, row.tp, row.dp);
  absl::StrAppend(text, Cell(true, static_cast<double>(row.kv_tokens_layers) * 1e-3),
                  Cell(true, static_cast<double>(row.kv_tokens_tiles) * 1e-3),
                  Cell(true, PerDevice(row, row.memory.weight_bytes)),
                  Cell(true, PerDevice(row, row.memory.slot_bytes)));
  const bool is_shared = row.strategy != "full";
  absl::StrAppendFormat(text, "%8s",
                        row.threshold.has_value() ? absl::StrCat(*row.threshold)
                        : is_shared               ? "none"
                                                  : "-");
  absl::StrAppend(text, Cell(true, row.step_s * 1e3), Cell(has_job, row.job.seconds),
                  Cell(has_job, row.job.output_tokens_per_s));
  absl::StrAppendFormat(text, "%8s %-8s", has_job ? absl::StrCat(row.job.rank_sequences) : "-",
                        has_job ? row.batching : "");
  absl::StrAppend(text, Cell(has_job, row.job.CasShare() * 100), "\n");
}

}  // namespace

std::string OfflineTable(const OfflineComparison& comparison) {
  const scheduler::OfflineLoad& load = comparison.load;
  std::string text = absl::StrFormat(
      "simulated: %s on %s, link %.0f GB/s; %d requests, seed %d, prompts of %.0f tokens and "
      "outputs of %.0f in the mean, sigma %.2f\nSTEP: batch %d, context %d; B_TH: the same "
      "context\n\n",
      comparison.model, comparison.device, comparison.link_bytes_per_s * 1e-9, load.requests,
      load.seed, load.prompt_mean, load.output_mean, load.sigma, comparison.batch,
      comparison.context);
  text +=
      "WHAT    TP  DP    KV 4.2    KV 4.4   WEIGHTS     SLOTS    B_TH      STEP       JOB"
      "    OUTPUT   BATCH             IN CAS\n"
      "                  1000      1000        GB        GB              ms         s"
      "       1/s                      %\n";
  for (const OfflineRow& row : comparison.rows) AppendRow(row, &text);
  for (const OfflineRow& row : comparison.rows) {
    if (row.refused.empty()) continue;
    absl::StrAppendFormat(&text, "no job: %s, TP %d, DP %d: %s\n", row.strategy, row.tp, row.dp,
                          row.refused);
  }
  return absl::StrCat(text, kLegend);
}

std::string OfflineJsonLines(const OfflineComparison& comparison) {
  std::string text;
  for (const OfflineRow& row : comparison.rows) {
    nlohmann::ordered_json json = {
        {"model", comparison.model},
        {"device", comparison.device},
        {"link_bytes_per_s", comparison.link_bytes_per_s},
        {"strategy", row.strategy},
        {"tp", row.tp},
        {"dp", row.dp},
        {"kv_tokens", row.memory.kv_tokens},
        {"kv_tokens_layer_slots", row.kv_tokens_layers},
        {"kv_tokens_tile_slots", row.kv_tokens_tiles},
        {"weight_bytes_per_device", row.memory.weight_bytes / static_cast<double>(row.tp)},
        {"slot_bytes_per_device", row.memory.slot_bytes / static_cast<double>(row.tp)},
        {"batch", comparison.batch},
        {"context", comparison.context},
        {"step_s", row.step_s}};
    if (row.strategy != "full") {
      json["threshold_batch"] = row.threshold.has_value() ? nlohmann::ordered_json(*row.threshold)
                                                          : nlohmann::ordered_json(nullptr);
    }
    if (row.refused.empty()) {
      json["job_s"] = row.job.seconds;
      json["output_tokens_per_s"] = row.job.output_tokens_per_s;
      json["batching"] = row.batching;
      json["rank_sequences"] = row.job.rank_sequences;
      json["mean_sequences"] = row.job.mean_sequences;
      json["cas_share"] = row.job.CasShare();
      json["switches"] = row.job.switches;
      json["preempted"] = row.job.preempted;
    } else {
      json["refused"] = row.refused;
    }
    absl::StrAppend(&text, json.dump(), "\n");
  }
  return text;
}

}  // namespace skein::services
