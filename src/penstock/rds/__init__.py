"""Amazon RDS and Aurora: instances described, parameter groups, metrics, certificates, imports from S3."""
