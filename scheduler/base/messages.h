// The messages between the four roles, one to one with proto/ (services/codec converts).
//
// A worker and the orchestrator exchange them over one stream, which the worker opens; a router and
// the orchestrator likewise. While the stream is open, messages arrive once and in order. When it
// breaks, the last ones sent may be lost. The next stream begins with a RegisterRequest or
// RouterHello, which carries the full state of the worker or router. The first message back names
// the orchestrator's generation, to which all messages of the stream belong.
//
// All others are calls: one Request and exactly one Reply. If there is no reply, the caller's shell
// makes one (UNAVAILABLE, DEADLINE_EXCEEDED); the callee may or may not have executed the call.
#pragma once

#include "scheduler/base/handoff_messages.h"
#include "scheduler/base/plan_messages.h"
#include "scheduler/base/router_messages.h"
#include "scheduler/base/worker_messages.h"
