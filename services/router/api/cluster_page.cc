#include "services/router/api/cluster_page.h"

#include <cstdint>

namespace skein::services {
namespace {

void AddModel(const std::string& model, const ModelLoad& load, int64_t queued, Metrics* page) {
  const Metrics::Labels labels = EngineLabels(model);
  const auto waiting = static_cast<double>(load.waiting + queued);
  page->Gauge("vllm:num_requests_running", "Requests that the instances of the cluster compute.",
              labels)
      .Set(static_cast<double>(load.running));
  page->Gauge("vllm:num_requests_waiting", "Requests that wait in this router and in the cluster.",
              labels)
      .Set(waiting);
  Metrics::Labels by_reason = labels;
  by_reason["reason"] = "capacity";
  page->Gauge("vllm:num_requests_waiting_by_reason",
              "Requests that wait in this router and in the cluster, by reason.", by_reason)
      .Set(waiting);
  page->Gauge("vllm:kv_cache_usage_perc",
              "Share of the decode instances' KV blocks that sequences hold, 0 to 1.", labels)
      .Set(load.kv_blocks == 0
               ? 0
               : static_cast<double>(load.kv_blocks_held) / static_cast<double>(load.kv_blocks));
  Metrics::Labels cache = labels;
  cache["block_size"] = std::to_string(load.kv_block_tokens);
  cache["num_gpu_blocks"] = std::to_string(load.kv_blocks);
  page->Gauge("vllm:cache_config_info",
              "Always 1; the labels are the block size and the total KV blocks of the decode "
              "instances.",
              cache)
      .Set(1);
}

}  // namespace

std::string ClusterPage(const Metrics& own, const ModelWatch& watch,
                        const scheduler::RouterSnapshot& snapshot,
                        const std::vector<std::string>& models) {
  Metrics page;  // made anew, so that no series of an earlier size of the cluster stays
  for (const std::string& model : models) {
    const auto found = snapshot.models.find(model);
    AddModel(model, watch.Load(model), found == snapshot.models.end() ? 0 : found->second.queued,
             &page);
  }
  SetNoAdapters(&page);
  return own.RenderWith(page);
}

}  // namespace skein::services
