"""How the dashboard is made, for those who change it: nothing here is in the wheel but the JSON that it makes.

`python -m stepwell.metrics.dashboards > metrics/dashboards/stepwell.json`; a test holds the file to it.
"""
