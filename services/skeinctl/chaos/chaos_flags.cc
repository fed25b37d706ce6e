#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/skeinctl/chaos/chaos.h"
#include "services/skeinctl/chaos/scenario.h"
#include "services/skeinctl/cluster/cluster_client.h"

namespace skein::services {
namespace {

// INVALID_ARGUMENT names a scenario that does not exist.
absl::Status CheckNames(const std::vector<std::string>& names) {
  if (names.empty()) return absl::InvalidArgumentError("SCENARIO is required");
  std::vector<std::string> known = {"all", "handoff", "bind", "release", "batch"};
  for (const chaos::Scenario& one : chaos::Scenarios()) known.push_back(one.name);
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("SCENARIO: '", name, "' is not one of ", absl::StrJoin(known, ", ")));
  }
  return absl::OkStatus();
}

std::string ScenarioList() {
  size_t width = 0;
  for (const chaos::Scenario& one : chaos::Scenarios()) width = std::max(width, one.name.size());
  std::string list;
  for (const chaos::Scenario& one : chaos::Scenarios()) {
    absl::StrAppend(&list, "  ", one.name, std::string(width + 2 - one.name.size(), ' '),
                    one.summary, one.in_all ? "" : " Not in all.", "\n");
  }
  return list;
}

}  // namespace

void ChaosFlags::Register(FlagSet* set) {
  set->About(absl::StrCat(
      "Break processes of a cluster under load, and print what clients saw.\n"
      "\n"
      "Long answers stream all the time. Each request is sent alone first, and every later answer "
      "is "
      "compared with that one, token by token. It asks before it breaks anything. Other clients of "
      "the cluster feel the faults, too.\n"
      "\n"
      "Scenarios:\n",
      ScenarioList(),
      "\n"
      "Examples:\n"
      "  skeinctl chaos kill-decode\n"
      "  skeinctl chaos all --yes --format json --out faults.json\n"
      "  skeinctl chaos all --kubernetes --namespace skein --url http://10.0.0.7:8000"));
  set->RepeatedPositional(
      &scenarios, "SCENARIO",
      "What to play, in the order of the list; all; or handoff, bind, release or batch for all "
      "that begin so.");
  set->Bool(&yes, "yes", "Break things without asking.");
  RegisterCluster(set);
  RegisterLoad(set);
  RegisterFaults(set);
  set->Group("Output");
  set->String(&format, "format", "Output format.")
      .OneOf({"table", "markdown", "json"})
      .Value("FORMAT");
  set->String(&out, "out", "Also write the result as JSON to this file.").Value("FILE");
  set->Check([this] {
    if (kubernetes && urls.empty()) {
      return absl::InvalidArgumentError("--url is required with --kubernetes");
    }
    if (!kubernetes && !kubeconfig.empty()) {
      return absl::InvalidArgumentError("--kubeconfig needs --kubernetes");
    }
    return CheckNames(scenarios);
  });
}

void ChaosFlags::RegisterCluster(FlagSet* set) {
  set->Group("Cluster");
  services::RegisterCluster(&orchestrator, set);
  set->Strings(
         &urls, "url",
         "Address of a router; give several as clients of a load balancer have them. Without a "
         "scheme it is https if there is --tls-dir, else http. Without --url: all routers that "
         "the orchestrator knows.")
      .Value("http[s]://HOST:PORT");
  set->String(&model, "model", "Model name; empty means the only one that the server lists.")
      .Value("NAME");
  set->String(&api_key, "api-key", "Bearer token; empty means the value of OPENAI_API_KEY, if set.")
      .Value("KEY")
      .Environment("SKEIN_API_KEY");
  set->Bool(&kubernetes, "kubernetes",
            "Delete pods through kubectl, instead of sending signals to processes of this host.");
  set->String(&kubeconfig, "kubeconfig", "With --kubernetes: the cluster's file of access.")
      .Value("FILE")
      .Default("kubectl's");
  set->String(&name_space, "namespace", "With --kubernetes: the namespace of the pods.");
  set->String(&kubectl, "kubectl", "With --kubernetes: the program.").Value("FILE");
  set->Strings(&spare, "spare", "Name or pid of a process, or name of a pod, that is not broken.")
      .Value("NAME");
  set->Bool(&restarts_itself, "restarts-itself",
            "Something else starts processes again, such as systemd or skein-node.");
  set->String(&restart_with, "restart-with",
              "A program that starts the process whose name is its argument, as "
              "deploy/local/restart does.")
      .Value("FILE")
      .Default("deploy/local/restart for its clusters, else the process's own command line");
}

void ChaosFlags::RegisterLoad(FlagSet* set) {
  set->Group("Load");
  set->Int(&streams, "streams", "Concurrent streams.", 1, 1 << 16);
  set->Int(
      &prompts, "prompts",
      "Number of different requests, of each kind by turns: greedy, sampled with a seed, chat, "
      "n = 2, logprobs, a stop string, not streamed, penalties.",
      1, 1 << 16);
  set->Int(&prompt_tokens, "prompt-tokens", "Length of a prompt.", 1, 1 << 20);
  set->Int(&tokens, "tokens", "Length of the shortest answer; the longest is nearly twice as long.",
           1, 1 << 20);
  set->Double(&short_share, "short-share",
              "Share of requests with short answers, which are sent between the others.", 0, 0.99);
  set->Int(&short_tokens, "short-tokens", "Length of a short answer.", 1, 1 << 20);
  set->Int(&handoff_prompt_tokens, "handoff-prompt-tokens",
           "Length of the prompts that are handed off all the time in the handoff scenarios.", 1,
           1 << 20);
  set->Int(
      &batch_lines, "batch-lines",
      "Lines of the batch that is computed in the batch scenarios; their answers are as long as "
      "those of the streams.",
      2, 50000);
  set->Bool(&near_ties, "near-ties",
            "For workers without reproducible sums: count a greedy answer that parts from its "
            "reference at a near tie of two tokens apart, and not as wrong, if the model itself "
            "confirms every token of it.");
  set->Double(&hung_after_s, "hung-after-s", "A request that has not ended by then hangs.", 1,
              86400);
  set->Int(&seed, "seed", "Seed of prompts and of the random scenario.", 0, int64_t{1} << 62);
}

void ChaosFlags::RegisterFaults(FlagSet* set) {
  set->Group("Faults");
  set->Double(&stop_s, "stop-s",
              "Time between SIGSTOP and SIGCONT, and for which the network is broken.", 0.01, 3600);
  set->Double(&restart_after_s, "restart-after-s",
              "Time after which an ended process is started again.", 0, 3600);
  set->Double(&whole_within_s, "whole-within-s", "Longest time until all processes serve again.", 1,
              86400);
  set->Int(&rounds, "rounds", "How often restart-each restarts every process.", 1, 1000000);
  set->Double(&fault_every_s, "fault-every-s", "Time between faults of the random scenario.", 0.1,
              86400);
  set->Double(&duration_s, "duration-s", "Duration of the random scenario.", 1, 1e7);
}

}  // namespace skein::services
