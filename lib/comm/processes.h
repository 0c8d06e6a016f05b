#pragma once

#include "comm/process_group.h"
