# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
