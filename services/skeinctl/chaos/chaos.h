// skeinctl chaos: breaks processes of a cluster under a load of its own, and prints what clients
// saw.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/flags/flags.h"

namespace skein::services {

struct ChaosFlags {
  std::vector<std::string> scenarios;
  bool yes = false;

  std::string orchestrator;
  std::vector<std::string> urls;
  std::string model;
  std::string api_key;
  bool kubernetes = false;
  std::string kubeconfig;
  std::string name_space = "skein";
  std::string kubectl = "kubectl";
  std::vector<std::string> spare;
  bool restarts_itself = false;
  std::string restart_with;

  int64_t streams = 16;
  int64_t prompts = 8;
  int64_t prompt_tokens = 64;
  int64_t tokens = 500;
  double short_share = 0;
  int64_t short_tokens = 32;
  int64_t handoff_prompt_tokens = 2048;
  int64_t batch_lines = 500;
  bool near_ties = false;
  double hung_after_s = 180;
  int64_t seed = 1;

  double stop_s = 4;
  double restart_after_s = 1;
  double fault_every_s = 10;
  double duration_s = 3600;
  double whole_within_s = 120;
  int64_t rounds = 1;

  std::string format = "table";
  std::string out;

  void Register(FlagSet* set);

 private:
  void RegisterCluster(FlagSet* set);
  void RegisterLoad(FlagSet* set);
  void RegisterFaults(FlagSet* set);
};

// Exit code: 0; 3 if an answer was wrong, lost, doubled or hung, or failed though a router was
// left; 1 if a scenario could not be played to its end (the rows before it are printed); 2 for
// wrong flags, or if nobody agreed; 130 when interrupted.
int RunChaos(const ChaosFlags& flags);

}  // namespace skein::services
